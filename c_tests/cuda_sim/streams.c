// SPDX-License-Identifier: Apache-2.0
// Creates, queries, synchronises and destroys streams. The next call on a stream reports the error of failed
// work.
#include "contexts.h"
#include "queue.h"

#define DEFAULT_STREAM ((CUstream)0)

static stream *find_created(CUstream handle) {
    stream *found = list_find(sim.streams, handle);
    if (found == NULL || found->destroyed)
        sim_crash("%p is not a stream, or a destroyed one", (void *)handle);
    return found;
}

static bool is_special(CUstream handle) {
    return handle == DEFAULT_STREAM || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
}

CUresult stream_find(CUstream handle, stream **found) {
    if (!is_special(handle)) {
        *found = find_created(handle);
        return CUDA_SUCCESS;
    }
    context *current = context_current();
    RETURN_IF(current == NULL, CUDA_ERROR_INVALID_CONTEXT);
    RETURN_IF(!current->is_alive, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    *found = handle == CU_STREAM_PER_THREAD ? &current->per_thread : &current->legacy;
    return CUDA_SUCCESS;
}

CUresult stream_take_error(stream *found) {
    const CUresult error = found->error;
    found->error = CUDA_SUCCESS;
    return error;
}

CUresult streams_take_error_of(context *owner) {
    TRY(stream_take_error(&owner->legacy));
    TRY(stream_take_error(&owner->per_thread));
    EACH(stream, each, sim.streams) {
        RETURN_IF(each->context == owner && each->error != CUDA_SUCCESS, stream_take_error(each));
    }
    return CUDA_SUCCESS;
}

void streams_sweep(void) {
    EACH_TO_REMOVE(stream, known, sim.streams) {
        if (known->destroyed && known->first == NULL) list_retire(&known->node);
    }
}

uint64_t streams_destroy_of(const context *ended) {
    uint64_t count = 0;
    EACH(stream, known, sim.streams) {
        if (known->context == ended && !known->destroyed) {
            known->destroyed = true;
            count++;
        }
    }
    streams_sweep();
    return count;
}

static CUresult create(CUstream *created, unsigned flags) {
    INVALID_IF(created == NULL || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING) != 0);
    stream *added = list_add(&sim.streams, sizeof(*added));
    added->context = context_current();
    added->is_blocking = (flags & CU_STREAM_NON_BLOCKING) == 0;
    *created = added;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *created, unsigned flags) {
    DRIVER_CALL(cuStreamCreate);
    return create(created, flags);
}

/* The driver clamps a priority to the range of the device, so no value is an error. */
CUresult cuStreamCreateWithPriority(CUstream *created, unsigned flags, int priority) {
    DRIVER_CALL(cuStreamCreateWithPriority);
    (void)priority;
    return create(created, flags);
}

/* Returns at once. The tasks of the stream still run, and then it is freed. */
CUresult cuStreamDestroy_v2(CUstream handle) {
    DRIVER_CALL(cuStreamDestroy_v2);
    RETURN_IF(is_special(handle), CUDA_ERROR_INVALID_HANDLE);
    find_created(handle)->destroyed = true;
    streams_sweep();
    return RELEASED(CUDA_SUCCESS);
}

CUresult cuStreamSynchronize(CUstream handle) {
    DRIVER_CALL(cuStreamSynchronize);
    TRY_GET(stream *, waited, stream_find(handle, &waited));
    queue_wait_for_stream(waited);
    return stream_take_error(waited);
}

/* The function must call no function of the driver. */
CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void *data) {
    DRIVER_CALL(cuLaunchHostFunc);
    INVALID_IF(function == NULL);
    TRY_GET(stream *, found, stream_find(handle, &found));
    queue_submit(&(work){.kind = WORK_HOST, .stream = found, .function = function, .data = data});
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext *owner) {
    DRIVER_CALL(cuStreamGetCtx);
    TRY_GET(stream *, found, stream_find(handle, &found));
    INVALID_IF(owner == NULL);
    RETURN_IF(found->captured != NULL && found->capture.is_invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    *owner = found->context;
    return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream handle) {
    DRIVER_CALL(cuStreamQuery);
    TRY_GET(stream *, found, stream_find(handle, &found));
    RETURN_IF(found->captured != NULL, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    queue_advance();
    return queue_is_done(found) ? stream_take_error(found) : CUDA_ERROR_NOT_READY;
}
