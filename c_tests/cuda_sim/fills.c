// SPDX-License-Identifier: Apache-2.0
// Fills, which run on the device itself: plain memory of a peer is out of their reach.
#include "contexts.h"
#include "copying.h"
#include "spans.h"

static bool is_of_peer(CUdeviceptr address, CUdevice device) {
    const span *known = span_at(address);
    return known != NULL && known->kind == SPAN_ALLOCATION && span_device(known) != device;
}

static CUresult check_fill(range filled, CUdevice device) {
    RETURN_IF(is_of_peer(filled.start, device), CUDA_ERROR_INVALID_VALUE);
    return check_reach(filled, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, KNOWN, device);
}

static bool is_touchable(CUdeviceptr address) {
    const span *known = span_at(address);
    return known == NULL || known->is_managed || span_is_host(known);
}

/* Nobody waits for it but where it fills memory that the program can touch. */
CUresult cuMemsetD8_v2(CUdeviceptr destination, unsigned char value, size_t size) {
    DRIVER_CALL(cuMemsetD8_v2);
    stream *legacy = NULL;
    CUresult result = find_healthy_stream(CU_STREAM_LEGACY, &legacy);
    if (result == CUDA_SUCCESS) {
        result = check_fill((range){destination, size}, context_current()->device);
    }
    if (result == CUDA_SUCCESS) {
        queue_submit(&(work){.kind = WORK_FILL, .stream = legacy, .destination = destination, .size = size,
                             .value = value});
    }
    if (result == CUDA_SUCCESS && is_touchable(destination)) {
        result = await_legacy_stream();
    }
    return result;
}

CUresult cuMemsetD8Async(CUdeviceptr destination, unsigned char value, size_t size, CUstream handle) {
    DRIVER_CALL(cuMemsetD8Async);
    stream *on = NULL;
    CUresult result = find_healthy_stream(handle, &on);
    if (result == CUDA_SUCCESS) {
        result = check_fill((range){destination, size}, on->context->device);
    }
    if (result == CUDA_SUCCESS) {
        const work filling = {.kind = WORK_FILL, .stream = on, .destination = destination, .size = size,
                              .value = value};
        submit_or_fail(&filling, &this_call);
    }
    return result;
}
