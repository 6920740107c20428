// SPDX-License-Identifier: Apache-2.0
// Takes work for streams, and does it when somebody looks or waits.
#include "queue.h"

#include "cuda_sim.h"
#include "graphs.h"
#include "kernels.h"
#include "order.h"
#include "reach.h"
#include "spans.h"

#include <stdlib.h>

static bool is_holding;
static uint64_t last_number;

/* Memory may have gone since the work was submitted: then the device finds nothing at the address. */
static bool is_still_there(CUdeviceptr address, bool was_known) {
    return !was_known || span_at(address) != NULL;
}

static void fail(stream *failed, CUresult error) {
    if (error != CUDA_SUCCESS) failed->error = error;
    sim.illegal_accesses += error == CUDA_ERROR_ILLEGAL_ADDRESS;
}

static void do_work(const work *work) {
    switch (work->kind) {
    case WORK_COPY: {
        const CUdeviceptr source = work->early != NULL ? (uintptr_t)work->early : work->source;
        reach_copy(work->destination, source, work->size);
        break;
    }
    case WORK_FILL: reach_fill(work->destination, work->value, work->size); break;
    case WORK_RECORD: mark_reach(work->mark, work->stream->error); break;
    case WORK_WAIT: break;
    case WORK_LAUNCH: fail(work->stream, kernel_run(work->blocks, work->stream->context)); break;
    case WORK_CHECKSUM: fail(work->stream, checksum_run(work->tiles, work->stream->context)); break;
    case WORK_FAIL: work->stream->error = work->error; break;
    }
}

static void put(const work *work) {
    piece *added = sim_allocate(sizeof(*added));
    stream *on = work->stream;
    added->work = *work;
    added->number = ++last_number;
    added->knew_destination = span_at(work->destination) != NULL;
    added->knew_source = span_at(work->source) != NULL;
    if (on->first == NULL) on->first = added;
    else on->last->node.next = &added->node;
    on->last = added;
}

static piece *take_from(stream *on) {
    piece *taken = on->first;
    on->first = (piece *)taken->node.next;
    if (on->first == NULL) on->last = NULL;
    return taken;
}

static void do_piece_of(stream *on) {
    piece *done = take_from(on);
    const work *work = &done->work;
    if (is_still_there(work->destination, done->knew_destination) &&
        is_still_there(work->source, done->knew_source)) {
        do_work(work);
    } else {
        fail(on, CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    work_free(work);
    free(done);
    if (on->destroyed && on->first == NULL) streams_sweep();
}

void work_free(const work *done) {
    free((void *)(uintptr_t)done->blocks);
    free((void *)(uintptr_t)done->tiles);
    free((void *)(uintptr_t)done->early);
    mark_release(done->mark);
}

void queue_submit(const work *work) {
    if (work->stream->captured != NULL) graph_add(work->stream->captured, work);
    else put(work);
}

/* So few that who asks for more than a little sees some of it done. */
void queue_look(void) {
    for (int i = 0; i < PIECES_A_LOOK && !is_holding; i++) {
        stream *on = order_choose();
        if (on == NULL) return;
        do_piece_of(on);
    }
}

bool queue_is_done(const stream *asked) {
    return asked == &asked->context->legacy ? !order_is_left_before_legacy(asked->context, last_number)
                                            : !order_is_left(asked, last_number);
}

/* What is waited for, among the pieces up to a number: of a stream, before a mark, or of a context. */
typedef struct awaited {
    const stream *stream;
    const mark *mark;
    const context *context;
    uint64_t number;
} awaited;

static bool is_any_left(const context *of, uint64_t number) {
    EACH(context, known, sim.contexts) {
        if ((of == NULL || known == of) && order_is_left_before_legacy(known, number)) return true;
    }
    EACH(stream, known, sim.streams) {
        if ((of == NULL || known->context == of) && order_is_left(known, number)) return true;
    }
    return false;
}

static bool is_over(const awaited *what) {
    if (what->mark != NULL) return mark_is_reached(what->mark);
    if (what->stream == NULL) return !is_any_left(what->context, what->number);
    const bool is_legacy = what->stream == &what->stream->context->legacy;
    return is_legacy ? !order_is_left_before_legacy(what->stream->context, what->number)
                     : !order_is_left(what->stream, what->number);
}

/* The piece of the least number waits for none that is left, so that there always is one to do. */
static void wait_until(awaited what) {
    what.number = last_number;
    while (!is_over(&what)) {
        if (is_holding) pthread_cond_wait(&sim.work_done, &sim.lock);
        else do_piece_of(order_choose());
    }
}

void queue_drain(const context *of) {
    wait_until((awaited){.context = of});
}

void queue_wait_for_stream(const stream *waited) {
    wait_until((awaited){.stream = waited});
}

/* It is held meanwhile: its event may be recorded again by others. */
void queue_wait_for_mark(mark *waited) {
    if (waited != NULL) {
        mark_hold(waited);
        wait_until((awaited){.mark = waited});
        mark_release(waited);
    }
}

static void discard_of(stream *on) {
    while (on->first != NULL) {
        piece *dropped = take_from(on);
        if (dropped->work.kind == WORK_RECORD)
            mark_reach(dropped->work.mark, CUDA_ERROR_CONTEXT_IS_DESTROYED);
        work_free(&dropped->work);
        free(dropped);
    }
}

void queue_discard(context *of) {
    discard_of(&of->legacy);
    discard_of(&of->per_thread);
    EACH(stream, known, sim.streams) {
        if (known->context == of) discard_of(known);
    }
    pthread_cond_broadcast(&sim.work_done);
}

void queue_go(void) {
    is_holding = false;
    queue_drain(NULL);
    pthread_cond_broadcast(&sim.work_done);
}

void sim_hold(void) {
    LOCKED;
    is_holding = true;
}

void sim_go(void) {
    LOCKED;
    queue_go();
}
