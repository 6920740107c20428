// SPDX-License-Identifier: Apache-2.0
// Events: each refers to its latest record, if it was recorded.
#include "captures.h"
#include "contexts.h"
#include "queue.h"

#define EVENT_FLAGS (unsigned)(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)

static CUresult find(CUevent handle, event **found) {
    RETURN_IF(handle == NULL, CUDA_ERROR_INVALID_HANDLE);
    *found = list_find(sim.events, handle);
    if (*found == NULL) sim_crash("%p is not an event, or a destroyed one", (void *)handle);
    return CUDA_SUCCESS;
}

/* Its record stays alive while tasks refer to it. */
static void destroy(event *ended) {
    record_release(ended->record);
    list_retire(&ended->node);
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

/* An interprocess event must not measure time. */
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
    TRY_GET(event *, ended, find(handle, &ended));
    destroy(ended);
    return RELEASED(CUDA_SUCCESS);
}

CUresult cuEventRecord(CUevent handle, CUstream on) {
    DRIVER_CALL(cuEventRecord);
    TRY_GET(event *, recorded, find(handle, &recorded));
    TRY_GET(stream *, recording, stream_find(on, &recording));
    RETURN_IF(recorded->context != recording->context, CUDA_ERROR_INVALID_HANDLE);
    if (recording->captured == NULL) {
        record_release(recorded->record);
        recorded->record = record_create();
        queue_submit(&(work){.kind = WORK_RECORD, .stream = recording,
                             .record = record_retain(recorded->record)});
    }
    return CUDA_SUCCESS;
}

/* It is complete when all work of the context is that was submitted before, on every stream. Invalidates all
   captures of the context, whatever the mode of the thread. kvmem only queries such an event, so nothing else
   supports it here. */
CUresult cuCtxRecordEvent(CUcontext of, CUevent handle) {
    DRIVER_CALL(cuCtxRecordEvent);
    TRY_GET(event *, recorded, find(handle, &recorded));
    RETURN_IF(of == NULL || recorded->context != of, CUDA_ERROR_INVALID_HANDLE);
    if (captures_invalidate_of(of)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    record_release(recorded->record);
    recorded->record = record_create();
    recorded->record->context = of;
    recorded->record->number = queue_last_number();
    return CUDA_SUCCESS;
}

/* The stream waits for the latest record; a later record does not change that. */
CUresult cuStreamWaitEvent(CUstream waiting, CUevent handle, unsigned flags) {
    DRIVER_CALL(cuStreamWaitEvent);
    INVALID_IF(flags > 1);
    TRY_GET(event *, waited, find(handle, &waited));
    TRY_GET(stream *, found, stream_find(waiting, &found));
    if (found->captured == NULL && !record_is_complete(waited->record))
        queue_submit(&(work){.kind = WORK_WAIT, .stream = found, .record = record_retain(waited->record)});
    return CUDA_SUCCESS;
}

static CUresult error_of(const event *reached) {
    return reached->record == NULL ? CUDA_SUCCESS : reached->record->error;
}

CUresult cuEventQuery(CUevent handle) {
    DRIVER_CALL(cuEventQuery);
    TRY_GET(event *, queried, find(handle, &queried));
    queue_advance();
    record *latest = queried->record;
    const bool is_of_context = latest != NULL && latest->context != NULL && !latest->is_complete;
    if (is_of_context && queue_catch_up(latest->context, latest->number))
        record_complete(latest, CUDA_SUCCESS);
    return record_is_complete(queried->record) ? error_of(queried) : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent handle) {
    DRIVER_CALL(cuEventSynchronize);
    TRY_GET(event *, waited, find(handle, &waited));
    queue_wait_for_record(waited->record);
    return error_of(waited);
}

/* Both events must measure time, and their records must be complete. */
CUresult cuEventElapsedTime(float *milliseconds, CUevent first, CUevent last) {
    DRIVER_CALL(cuEventElapsedTime);
    INVALID_IF(milliseconds == NULL);
    TRY_GET(event *, from, find(first, &from));
    TRY_GET(event *, until, find(last, &until));
    RETURN_IF(from->context != until->context, CUDA_ERROR_INVALID_HANDLE);
    RETURN_IF(!from->is_timed || !until->is_timed, CUDA_ERROR_INVALID_HANDLE);
    RETURN_IF(from->record == NULL || until->record == NULL, CUDA_ERROR_INVALID_HANDLE);
    RETURN_IF(!record_is_complete(from->record) || !record_is_complete(until->record), CUDA_ERROR_NOT_READY);
    *milliseconds = (float)(until->record->completed_at - from->record->completed_at);
    return error_of(until);
}
