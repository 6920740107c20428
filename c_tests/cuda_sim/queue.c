// SPDX-License-Identifier: Apache-2.0
// One queue for all streams, in the order of submission: it keeps every order that streams and events need.
#include "queue.h"

#include "cuda_sim.h"
#include "graphs.h"
#include "kernels.h"
#include "reach.h"
#include "spans.h"

#include <stdlib.h>

static bool is_holding;
static node *first;
static node **end = &first;

/* Memory may have gone since the work was submitted: then the device finds nothing at the address. */
static bool is_still_there(CUdeviceptr address, bool was_known) {
    return !was_known || span_at(address) != NULL;
}

typedef struct waiting {
    node node;
    work work;
    bool knew_destination, knew_source;
} waiting;

static void fail(stream *failed, CUresult error) {
    if (error != CUDA_SUCCESS) {
        failed->error = error;
    }
}

static void do_work(const work *work) {
    switch (work->kind) {
    case WORK_COPY:
        reach_copy(work->destination, work->source, work->size);
        break;
    case WORK_FILL:
        reach_fill(work->destination, work->value, work->size);
        break;
    case WORK_RECORD:
        work->event->error = work->stream->error;
        event_happens(work->event);
        break;
    case WORK_LAUNCH:
        fail(work->stream, kernel_run(work->blocks, work->stream->context));
        break;
    case WORK_CHECKSUM:
        fail(work->stream, checksum_run(work->tiles, work->stream->context));
        break;
    case WORK_FAIL:
        work->stream->error = work->error;
        break;
    }
}

static void put_off(const work *work) {
    waiting *added = calloc(1, sizeof(*added));
    if (added == NULL) {
        sim_crash("no memory for work that waits");
    }
    added->work = *work;
    added->knew_destination = span_at(work->destination) != NULL;
    added->knew_source = span_at(work->source) != NULL;
    *end = &added->node;
    end = &added->node.next;
    work->stream->pending++;
    if (work->event != NULL) {
        work->event->pending++;
    }
}

static void do_waiting(waiting *done) {
    const work *work = &done->work;
    if (is_still_there(work->destination, done->knew_destination) &&
        is_still_there(work->source, done->knew_source)) {
        do_work(work);
    } else {
        work->stream->error = CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    work->stream->pending--;
    if (work->event != NULL) {
        work->event->pending--;
    }
    work_free(work);
    free(done);
}

void work_free(const work *done) {
    free((void *)(uintptr_t)done->blocks);
    free((void *)(uintptr_t)done->tiles);
}

void queue_submit(const work *work) {
    if (work->stream->captured != NULL) {
        graph_add(work->stream->captured, work);
    } else if (is_holding) {
        put_off(work);
    } else {
        do_work(work);
        work_free(work);
    }
}

void queue_go(void) {
    is_holding = false;
    while (first != NULL) {
        waiting *next = (waiting *)first;
        first = first->next;
        do_waiting(next);
    }
    end = &first;
    streams_sweep();
    events_sweep();
    pthread_cond_broadcast(&sim.work_done);
}

void queue_drain(void) {
    while (first != NULL) {
        pthread_cond_wait(&sim.work_done, &sim.lock);
    }
}

void queue_wait_for_stream(const stream *waited) {
    while (waited->pending > 0) {
        pthread_cond_wait(&sim.work_done, &sim.lock);
    }
}

void queue_wait_for_event(const event *waited) {
    while (waited->pending > 0) {
        pthread_cond_wait(&sim.work_done, &sim.lock);
    }
}

void sim_hold(void) {
    pthread_mutex_lock(&sim.lock);
    is_holding = true;
    pthread_mutex_unlock(&sim.lock);
}

void sim_go(void) {
    pthread_mutex_lock(&sim.lock);
    queue_go();
    pthread_mutex_unlock(&sim.lock);
}
