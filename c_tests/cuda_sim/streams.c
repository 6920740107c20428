// SPDX-License-Identifier: Apache-2.0
// Streams: made, asked, waited for, destroyed. What failed on one is told by the next call that looks at it.
#include "contexts.h"
#include "queue.h"

#define DEFAULT_STREAM ((CUstream)0)

static stream *find_created(CUstream handle) {
    EACH(stream, known, sim.streams) {
        if (known == handle && !known->destroyed) {
            return known;
        }
    }
    sim_crash("%p is no stream, or one that was destroyed", (void *)handle);
}

CUresult stream_find(CUstream handle, stream **found) {
    const bool is_special =
        handle == DEFAULT_STREAM || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
    if (!is_special) {
        *found = find_created(handle);
        return CUDA_SUCCESS;
    }
    context *current = context_current();
    RETURN_IF(current == NULL, CUDA_ERROR_INVALID_CONTEXT);
    RETURN_IF(!current->is_alive, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    *found = handle == CU_STREAM_PER_THREAD ? &current->per_thread : &current->legacy;
    return CUDA_SUCCESS;
}

CUresult stream_take_error(stream *asked) {
    const CUresult error = asked->error;
    asked->error = CUDA_SUCCESS;
    return error;
}

CUresult streams_take_error_of(const context *owner) {
    EACH(context, each, sim.contexts) {
        if (each == owner && each->legacy.error != CUDA_SUCCESS) {
            return stream_take_error(&each->legacy);
        }
        if (each == owner && each->per_thread.error != CUDA_SUCCESS) {
            return stream_take_error(&each->per_thread);
        }
    }
    EACH(stream, each, sim.streams) {
        if (each->context == owner && each->error != CUDA_SUCCESS) {
            return stream_take_error(each);
        }
    }
    return CUDA_SUCCESS;
}

void streams_sweep(void) {
    for (node *each = sim.streams; each != NULL;) {
        stream *known = (stream *)each;
        each = each->next;
        if (known->destroyed && known->first == NULL) {
            list_retire(&sim.streams, &known->node);
        }
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
    RETURN_IF(created == NULL || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING) != 0, CUDA_ERROR_INVALID_VALUE);
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

/* A priority out of its range is taken for the nearest in it, so there is none to refuse. */
CUresult cuStreamCreateWithPriority(CUstream *created, unsigned flags, int priority) {
    DRIVER_CALL(cuStreamCreateWithPriority);
    (void)priority;
    return create(created, flags);
}

/* Returns at once; what is left on it is done all the same, and then it goes. */
CUresult cuStreamDestroy_v2(CUstream handle) {
    DRIVER_CALL(cuStreamDestroy_v2);
    if (handle == DEFAULT_STREAM || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    find_created(handle)->destroyed = true;
    streams_sweep();
    return RELEASED(CUDA_SUCCESS);
}

CUresult cuStreamSynchronize(CUstream handle) {
    DRIVER_CALL(cuStreamSynchronize);
    stream *waited = NULL;
    const CUresult result = stream_find(handle, &waited);
    RETURN_IF(result != CUDA_SUCCESS, result);
    queue_wait_for_stream(waited);
    return stream_take_error(waited);
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext *owner) {
    DRIVER_CALL(cuStreamGetCtx);
    stream *asked = NULL;
    const CUresult result = stream_find(handle, &asked);
    if (result != CUDA_SUCCESS || owner == NULL) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    RETURN_IF(asked->captured != NULL && asked->capture.is_invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    *owner = asked->context;
    return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream handle) {
    DRIVER_CALL(cuStreamQuery);
    stream *asked = NULL;
    const CUresult result = stream_find(handle, &asked);
    RETURN_IF(result != CUDA_SUCCESS, result);
    RETURN_IF(asked->captured != NULL, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    queue_look();
    return queue_is_done(asked) ? stream_take_error(asked) : CUDA_ERROR_NOT_READY;
}
