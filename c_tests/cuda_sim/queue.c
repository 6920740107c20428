// SPDX-License-Identifier: Apache-2.0
// Queues the work of streams, and runs it in queries and synchronising calls.
#include "queue.h"

#include "cuda_sim.h"
#include "graphs.h"
#include "kernels.h"
#include "order.h"
#include "reach.h"
#include "spans.h"

#include <stdlib.h>

static bool is_holding, is_feeding;
static uint64_t last_number;
static size_t num_queued; /* tasks of all streams */

/* Whether memory that was mapped when the work was submitted is still mapped. */
static bool is_still_mapped(CUdeviceptr address, bool was_known) {
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
    case WORK_RECORD: record_complete(work->record, work->stream->error); break;
    case WORK_WAIT: break;
    case WORK_LAUNCH: fail(work->stream, kernel_run(work->blocks, work->stream->context)); break;
    case WORK_CHECKSUM: fail(work->stream, checksum_run(work->tiles, work->stream->context)); break;
    case WORK_FAIL: work->stream->error = work->error; break;
    case WORK_HOST: work->function(work->data); break;
    }
}

static void push_task(const work *work) {
    task *added = sim_allocate(sizeof(*added));
    stream *on = work->stream;
    added->work = *work;
    added->number = ++last_number;
    added->destination_was_known = span_at(work->destination) != NULL;
    added->source_was_known = span_at(work->source) != NULL;
    if (on->first == NULL) on->first = added;
    else on->last->node.next = &added->node;
    on->last = added;
    num_queued++;
}

static task *pop_task(stream *on) {
    task *taken = on->first;
    on->first = (task *)taken->node.next;
    if (on->first == NULL) on->last = NULL;
    num_queued--;
    return taken;
}

static void run_next_task(stream *on) {
    task *done = pop_task(on);
    const work *work = &done->work;
    if (is_still_mapped(work->destination, done->destination_was_known) &&
        is_still_mapped(work->source, done->source_was_known)) {
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
    record_release(done->record);
}

void queue_submit(const work *work) {
    if (work->stream->captured != NULL) graph_add(work->stream->captured, work);
    else push_task(work);
}

/* A fill owns nothing, so its work can be submitted again. */
static void feed(void) {
    stream *on = order_next_stream();
    if (on == NULL) return;
    const work again = on->first->work;
    run_next_task(on);
    if (again.kind == WORK_FILL) push_task(&again);
}

void queue_advance(void) {
    if (is_feeding) {
        feed();
        return;
    }
    const size_t share = num_queued / TASKS_PER_QUERY;
    const size_t most = share > TASKS_PER_QUERY ? share : TASKS_PER_QUERY;
    for (size_t i = 0; i < most && !is_holding; i++) {
        stream *on = order_next_stream();
        if (on == NULL) return;
        run_next_task(on);
    }
}

bool queue_is_done(const stream *queried) {
    return queried == &queried->context->legacy ? !order_is_unfinished_before_legacy(queried->context,
                                                                                     last_number)
                                            : !order_is_unfinished(queried, last_number);
}

/* The tasks that a call waits for: up to a number, of a stream, before a record, or of a context. */
typedef struct awaited {
    const stream *stream;
    const record *record;
    const context *context;
    uint64_t number;
} awaited;

static bool is_any_unfinished(const context *of, uint64_t number) {
    EACH(context, known, sim.contexts) {
        if ((of == NULL || known == of) && order_is_unfinished_before_legacy(known, number)) return true;
    }
    EACH(stream, known, sim.streams) {
        if ((of == NULL || known->context == of) && order_is_unfinished(known, number)) return true;
    }
    return false;
}

uint64_t queue_last_number(void) { return last_number; }

bool queue_catch_up(const context *of, uint64_t number) {
    while (!is_holding && !is_feeding && is_any_unfinished(of, number)) run_next_task(order_next_stream());
    return !is_any_unfinished(of, number);
}

static bool is_done(const awaited *what) {
    if (what->record != NULL) return record_is_complete(what->record);
    if (what->stream == NULL) return !is_any_unfinished(what->context, what->number);
    const bool is_legacy = what->stream == &what->stream->context->legacy;
    return is_legacy ? !order_is_unfinished_before_legacy(what->stream->context, what->number)
                     : !order_is_unfinished(what->stream, what->number);
}

/* The task with the lowest number waits for no other, so there is always a task that may run. */
static void wait_until(awaited what) {
    what.number = last_number;
    while (!is_done(&what)) {
        if (is_holding) pthread_cond_wait(&sim.work_done, &sim.lock);
        else run_next_task(order_next_stream());
    }
}

void queue_drain(const context *of) {
    wait_until((awaited){.context = of});
}

void queue_wait_for_stream(const stream *waited) {
    wait_until((awaited){.stream = waited});
}

/* Another thread may record the event again during the wait, which releases the event's reference. */
void queue_wait_for_record(record *waited) {
    if (waited != NULL) {
        record_retain(waited);
        wait_until((awaited){.record = waited});
        record_release(waited);
    }
}

static void discard_of(stream *on) {
    while (on->first != NULL) {
        task *dropped = pop_task(on);
        if (dropped->work.kind == WORK_RECORD)
            record_complete(dropped->work.record, CUDA_ERROR_CONTEXT_IS_DESTROYED);
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
    is_holding = is_feeding = false;
    queue_drain(NULL);
    pthread_cond_broadcast(&sim.work_done);
}

void sim_hold(void) {
    LOCKED;
    is_holding = true;
}

void sim_advance(uint64_t tasks) {
    LOCKED;
    for (uint64_t i = 0; i < tasks; i++) {
        stream *on = order_next_stream();
        if (on == NULL) break;
        run_next_task(on);
    }
    pthread_cond_broadcast(&sim.work_done);
}

void sim_feed(void) {
    LOCKED;
    is_feeding = true;
}

void sim_go(void) {
    LOCKED;
    queue_go();
}
