// SPDX-License-Identifier: Apache-2.0
// The stack of contexts of each thread, contexts that a program creates, and their destruction.
#include "contexts.h"

#include "call.h"
#include "devices.h"
#include "modules.h"
#include "queue.h"
#include "spans.h"

#define MAX_DEPTH 64

static _Thread_local context *stack[MAX_DEPTH];
static _Thread_local size_t depth;

context *context_current(void) { return depth == 0 ? NULL : stack[depth - 1]; }

size_t context_depth(void) { return depth; }

void context_push(context *pushed) {
    if (depth == MAX_DEPTH) sim_crash("more than %d contexts on the stack of one thread", MAX_DEPTH);
    stack[depth++] = pushed;
}

void context_pop(void) { depth--; }

context *context_find(CUcontext handle) {
    context *found = list_find(sim.contexts, handle);
    if (found == NULL) sim_crash("%p is not a context and never was one", (void *)handle);
    return found;
}

context *context_create(CUdevice device) {
    context *created = list_add(&sim.contexts, sizeof(*created));
    created->device = device;
    created->is_alive = true;
    created->id = ++sim.last_context_id;
    created->legacy.context = created;
    created->per_thread.context = created;
    created->per_thread.is_blocking = true;
    return created;
}

void context_destroy(context *ended) {
    queue_drain(ended);
    sim.lost_with_context += spans_destroy_of(ended);
    sim.lost_with_context += streams_destroy_of(ended);
    sim.lost_with_context += events_destroy_of(ended);
    sim.lost_with_context += modules_destroy_of(ended);
    ended->legacy.error = ended->per_thread.error = CUDA_SUCCESS;
    ended->is_alive = false;
    ended->peers = 0;
}

CUresult cuCtxCreate_v2(CUcontext *created, unsigned flags, CUdevice device) {
    DRIVER_CALL(cuCtxCreate_v2);
    INVALID_IF(created == NULL || (flags & ~(unsigned)CU_CTX_FLAGS_MASK) != 0);
    RETURN_IF(!device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    *created = context_create(device);
    context_push(*created);
    return CUDA_SUCCESS;
}

CUresult cuCtxDestroy_v2(CUcontext handle) {
    DRIVER_CALL(cuCtxDestroy_v2);
    INVALID_IF(handle == NULL);
    context *found = context_find(handle);
    RETURN_IF(found->is_primary, CUDA_ERROR_INVALID_CONTEXT);
    RETURN_IF(!found->is_alive, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    context_destroy(found);
    if (context_current() == found) context_pop();
    return RELEASED(CUDA_SUCCESS);
}

CUresult cuCtxPushCurrent_v2(CUcontext pushed) {
    DRIVER_CALL(cuCtxPushCurrent_v2);
    INVALID_IF(pushed == NULL);
    context_push(context_find(pushed));
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *popped) {
    DRIVER_CALL(cuCtxPopCurrent_v2);
    RETURN_IF(context_current() == NULL, CUDA_ERROR_INVALID_CONTEXT);
    if (popped != NULL) *popped = context_current();
    context_pop();
    return RELEASED(CUDA_SUCCESS);
}

CUresult cuCtxGetCurrent(CUcontext *current) {
    DRIVER_CALL(cuCtxGetCurrent);
    INVALID_IF(current == NULL);
    *current = context_current();
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext handle) {
    DRIVER_CALL(cuCtxSetCurrent);
    context *found = handle == NULL ? NULL : context_find(handle);
    if (context_current() != NULL) context_pop();
    if (found != NULL) context_push(found);
    return CUDA_SUCCESS;
}

/* Succeeds also for a destroyed context. */
CUresult cuCtxGetDevice(CUdevice *device) {
    DRIVER_CALL(cuCtxGetDevice);
    RETURN_IF(context_current() == NULL, CUDA_ERROR_INVALID_CONTEXT);
    INVALID_IF(device == NULL);
    *device = context_current()->device;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext queried, unsigned long long *id) {
    DRIVER_CALL(cuCtxGetId);
    INVALID_IF(id == NULL);
    const context *found = queried == NULL ? context_current() : context_find(queried);
    RETURN_IF(found == NULL, CUDA_ERROR_INVALID_CONTEXT);
    RETURN_IF(!found->is_alive, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    *id = found->id;
    return CUDA_SUCCESS;
}

/* Succeeds once per pair of contexts of different devices. */
CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned flags) {
    DRIVER_CALL(cuCtxEnablePeerAccess);
    RETURN_IF(handle == NULL, CUDA_ERROR_INVALID_CONTEXT);
    const context *peer = context_find(handle);
    context *own = context_current();
    INVALID_IF(flags != 0);
    RETURN_IF(!peer->is_alive || peer->device == own->device, CUDA_ERROR_INVALID_DEVICE);
    RETURN_IF(sim.no_peer_access, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    RETURN_IF((own->peers >> peer->device & 1) != 0, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    own->peers |= 1u << peer->device;
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) {
    DRIVER_CALL(cuCtxSynchronize);
    queue_drain(context_current());
    return streams_take_error_of(context_current());
}
