// SPDX-License-Identifier: Apache-2.0
// Events: each stands for the mark of its last record, and for nothing before the first.
#include "contexts.h"
#include "queue.h"

#define EVENT_FLAGS (unsigned)(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)

static CUresult find(CUevent handle, event **found) {
    RETURN_IF(handle == NULL, CUDA_ERROR_INVALID_HANDLE);
    EACH(event, known, sim.events) {
        if (known == handle) {
            *found = known;
            return CUDA_SUCCESS;
        }
    }
    sim_crash("%p is no event, or one that was destroyed", (void *)handle);
}

/* Its mark stays where work is to reach it, or waits for it. */
static void destroy(event *ended) {
    mark_release(ended->mark);
    list_retire(&sim.events, &ended->node);
}

uint64_t events_destroy_of(const context *ended) {
    uint64_t count = 0;
    for (node *each = sim.events; each != NULL;) {
        event *known = (event *)each;
        each = each->next;
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
    if (created == NULL || (flags & ~EVENT_FLAGS) != 0 || (is_shared && is_timed)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    event *added = list_add(&sim.events, sizeof(*added));
    added->context = context_current();
    added->is_timed = is_timed;
    *created = added;
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent handle) {
    DRIVER_CALL(cuEventDestroy_v2);
    event *ended = NULL;
    const CUresult result = find(handle, &ended);
    RETURN_IF(result != CUDA_SUCCESS, result);
    destroy(ended);
    return RELEASED(CUDA_SUCCESS);
}

CUresult cuEventRecord(CUevent handle, CUstream on) {
    DRIVER_CALL(cuEventRecord);
    event *recorded = NULL;
    stream *recording = NULL;
    CUresult result = find(handle, &recorded);
    if (result == CUDA_SUCCESS) {
        result = stream_find(on, &recording);
    }
    RETURN_IF(result != CUDA_SUCCESS, result);
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
    CUresult result = flags > 1 ? CUDA_ERROR_INVALID_VALUE : find(handle, &waited);
    if (result == CUDA_SUCCESS) {
        result = stream_find(waiting, &found);
    }
    if (result == CUDA_SUCCESS && found->captured == NULL && !mark_is_reached(waited->mark)) {
        queue_submit(&(work){.kind = WORK_WAIT, .stream = found, .mark = mark_hold(waited->mark)});
    }
    return result;
}

static CUresult error_of(const event *reached) {
    return reached->mark == NULL ? CUDA_SUCCESS : reached->mark->error;
}

CUresult cuEventQuery(CUevent handle) {
    DRIVER_CALL(cuEventQuery);
    event *asked = NULL;
    const CUresult result = find(handle, &asked);
    RETURN_IF(result != CUDA_SUCCESS, result);
    queue_look();
    return mark_is_reached(asked->mark) ? error_of(asked) : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent handle) {
    DRIVER_CALL(cuEventSynchronize);
    event *waited = NULL;
    const CUresult result = find(handle, &waited);
    RETURN_IF(result != CUDA_SUCCESS, result);
    queue_wait_for_mark(waited->mark);
    return error_of(waited);
}

/* Between two that measure time, were recorded and have happened. */
CUresult cuEventElapsedTime(float *milliseconds, CUevent first, CUevent last) {
    DRIVER_CALL(cuEventElapsedTime);
    event *from = NULL;
    event *until = NULL;
    CUresult result = milliseconds == NULL ? CUDA_ERROR_INVALID_VALUE : find(first, &from);
    if (result == CUDA_SUCCESS) {
        result = find(last, &until);
    }
    RETURN_IF(result != CUDA_SUCCESS, result);
    const bool are_timed = from->is_timed && until->is_timed;
    if (!are_timed || from->mark == NULL || until->mark == NULL || from->context != until->context) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    RETURN_IF(!mark_is_reached(from->mark) || !mark_is_reached(until->mark), CUDA_ERROR_NOT_READY);
    *milliseconds = (float)(until->mark->happened - from->mark->happened);
    return error_of(until);
}
