// SPDX-License-Identifier: Apache-2.0
// Events: reached at once when they were never recorded, else when the work before them is done.
#include "contexts.h"
#include "queue.h"

#include <time.h>

#define EVENT_FLAGS (unsigned)(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)

static CUresult find(CUevent handle, event **found) {
    if (handle == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    EACH(event, known, sim.events) {
        if (known == handle && !known->destroyed) {
            *found = known;
            return CUDA_SUCCESS;
        }
    }
    sim_crash("%p is no event, or one that was destroyed", (void *)handle);
}

void events_sweep(void) {
    for (node *each = sim.events; each != NULL;) {
        event *known = (event *)each;
        each = each->next;
        if (known->destroyed && known->pending == 0) {
            list_remove(&sim.events, &known->node);
        }
    }
}

uint64_t events_destroy_of(const context *ended) {
    uint64_t count = 0;
    EACH(event, known, sim.events) {
        if (known->context == ended && !known->destroyed) {
            known->destroyed = true;
            count++;
        }
    }
    events_sweep();
    return count;
}

void event_happens(event *recorded) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    recorded->happened = (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
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
    if (result != CUDA_SUCCESS) {
        return result;
    }
    ended->destroyed = true;
    events_sweep();
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
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (recorded->context != recording->context) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    recorded->was_recorded = true;
    queue_submit(&(work){.kind = WORK_RECORD, .stream = recording, .event = recorded});
    return CUDA_SUCCESS;
}

/* The order of the one queue does it; there is only to check. */
CUresult cuStreamWaitEvent(CUstream waiting, CUevent handle, unsigned flags) {
    DRIVER_CALL(cuStreamWaitEvent);
    event *waited = NULL;
    stream *found = NULL;
    CUresult result = flags > 1 ? CUDA_ERROR_INVALID_VALUE : find(handle, &waited);
    if (result == CUDA_SUCCESS) {
        result = stream_find(waiting, &found);
    }
    return result;
}

CUresult cuEventQuery(CUevent handle) {
    DRIVER_CALL(cuEventQuery);
    event *asked = NULL;
    const CUresult result = find(handle, &asked);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return asked->pending > 0 ? CUDA_ERROR_NOT_READY : asked->error;
}

CUresult cuEventSynchronize(CUevent handle) {
    DRIVER_CALL(cuEventSynchronize);
    event *waited = NULL;
    const CUresult result = find(handle, &waited);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    queue_wait_for_event(waited);
    return waited->error;
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
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const bool are_timed = from->is_timed && until->is_timed;
    if (!are_timed || !from->was_recorded || !until->was_recorded || from->context != until->context) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (from->pending > 0 || until->pending > 0) {
        return CUDA_ERROR_NOT_READY;
    }
    *milliseconds = (float)(until->happened - from->happened);
    return until->error;
}
