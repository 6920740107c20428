// SPDX-License-Identifier: Apache-2.0
// Events: each stands for the mark of its last record, and for nothing before the first.
#include "contexts.h"
#include "queue.h"

#define EVENT_FLAGS (unsigned)(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)

static CUresult find(CUevent handle, event **found) {
    RETURN_IF(handle == NULL, CUDA_ERROR_INVALID_HANDLE);
    *found = list_find(sim.events, handle);
    if (*found == NULL) sim_crash("%p is no event, or one that was destroyed", (void *)handle);
    return CUDA_SUCCESS;
}

/* Its mark stays where work is to reach it, or waits for it. */
static void destroy(event *ended) {
    mark_release(ended->mark);
    list_retire(&sim.events, &ended->node);
}

uint64_t events_destroy_of(const context *ended) {
    uint64_t count = 0;
    EACH_TO_REMOVE(event, known, sim.events) {
        if (known->context == ended) {
            destroy(known);
            count++;
        }
    }
    return count;
}

/* One for other processes must not measure time. */
CUresult cuEventCreate(CUevent *created, unsigned flags) {
    DRIVER_CALL(cuEventCreate);
    const bool is_shared = (flags & CU_EVENT_INTERPROCESS) != 0;
    const bool is_timed = (flags & CU_EVENT_DISABLE_TIMING) == 0;
    INVALID_IF(created == NULL || (flags & ~EVENT_FLAGS) != 0 || (is_shared && is_timed));
    event *added = list_add(&sim.events, sizeof(*added));
    added->context = context_current();
    added->is_timed = is_timed;
    *created = added;
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent handle) {
    DRIVER_CALL(cuEventDestroy_v2);
    event *ended = NULL;
    TRY(find(handle, &ended));
    destroy(ended);
    return RELEASED(CUDA_SUCCESS);
}

CUresult cuEventRecord(CUevent handle, CUstream on) {
    DRIVER_CALL(cuEventRecord);
    event *recorded = NULL;
    stream *recording = NULL;
    TRY(find(handle, &recorded));
    TRY(stream_find(on, &recording));
    RETURN_IF(recorded->context != recording->context, CUDA_ERROR_INVALID_HANDLE);
    if (recording->captured == NULL) {
        mark_release(recorded->mark);
        recorded->mark = mark_make();
        queue_submit(&(work){.kind = WORK_RECORD, .stream = recording, .mark = mark_hold(recorded->mark)});
    }
    return CUDA_SUCCESS;
}

/* What the event stands for now; recorded again, it stands for something else. */
CUresult cuStreamWaitEvent(CUstream waiting, CUevent handle, unsigned flags) {
    DRIVER_CALL(cuStreamWaitEvent);
    event *waited = NULL;
    stream *found = NULL;
    INVALID_IF(flags > 1);
    TRY(find(handle, &waited));
    TRY(stream_find(waiting, &found));
    if (found->captured == NULL && !mark_is_reached(waited->mark))
        queue_submit(&(work){.kind = WORK_WAIT, .stream = found, .mark = mark_hold(waited->mark)});
    return CUDA_SUCCESS;
}

static CUresult error_of(const event *reached) {
    return reached->mark == NULL ? CUDA_SUCCESS : reached->mark->error;
}

CUresult cuEventQuery(CUevent handle) {
    DRIVER_CALL(cuEventQuery);
    event *asked = NULL;
    TRY(find(handle, &asked));
    queue_look();
    return mark_is_reached(asked->mark) ? error_of(asked) : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent handle) {
    DRIVER_CALL(cuEventSynchronize);
    event *waited = NULL;
    TRY(find(handle, &waited));
    queue_wait_for_mark(waited->mark);
    return error_of(waited);
}

/* Between two that measure time, were recorded and have happened. */
CUresult cuEventElapsedTime(float *milliseconds, CUevent first, CUevent last) {
    DRIVER_CALL(cuEventElapsedTime);
    event *from = NULL;
    event *until = NULL;
    INVALID_IF(milliseconds == NULL);
    TRY(find(first, &from));
    TRY(find(last, &until));
    RETURN_IF(from->context != until->context, CUDA_ERROR_INVALID_HANDLE);
    RETURN_IF(!from->is_timed || !until->is_timed, CUDA_ERROR_INVALID_HANDLE);
    RETURN_IF(from->mark == NULL || until->mark == NULL, CUDA_ERROR_INVALID_HANDLE);
    RETURN_IF(!mark_is_reached(from->mark) || !mark_is_reached(until->mark), CUDA_ERROR_NOT_READY);
    *milliseconds = (float)(until->mark->happened - from->mark->happened);
    return error_of(until);
}
