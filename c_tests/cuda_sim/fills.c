// SPDX-License-Identifier: Apache-2.0
// Fills. They run on the device, so they cannot access memory from cuMemAlloc of a peer.
#include "contexts.h"
#include "copying.h"
#include "spans.h"

static bool is_of_peer(CUdeviceptr address, CUdevice device) {
    const span *known = span_at(address);
    return known != NULL && known->kind == SPAN_ALLOCATION && span_device(known) != device;
}

static CUresult check_fill(range filled, CUdevice device) {
    INVALID_IF(is_of_peer(filled.start, device));
    return check_reach(filled, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, KNOWN, device);
}

static bool is_host_accessible(CUdeviceptr address) {
    const span *known = span_at(address);
    return known == NULL || known->is_managed || span_is_host(known);
}

/* Returns after the fill only if the host can access the memory. */
CUresult cuMemsetD8_v2(CUdeviceptr destination, unsigned char value, size_t size) {
    DRIVER_CALL(cuMemsetD8_v2);
    TRY_GET(stream *, legacy, find_healthy_stream(CU_STREAM_LEGACY, &legacy));
    TRY(check_fill((range){destination, size}, context_current()->device));
    queue_submit(&(work){.kind = WORK_FILL, .stream = legacy, .destination = destination, .size = size,
                         .value = value});
    return is_host_accessible(destination) ? await_legacy_stream() : CUDA_SUCCESS;
}

CUresult cuMemsetD8Async(CUdeviceptr destination, unsigned char value, size_t size, CUstream handle) {
    DRIVER_CALL(cuMemsetD8Async);
    TRY_GET(stream *, on, find_healthy_stream(handle, &on));
    TRY(check_fill((range){destination, size}, on->context->device));
    submit_or_fail(&(work){.kind = WORK_FILL, .stream = on, .destination = destination, .size = size,
                           .value = value}, &this_call);
    return CUDA_SUCCESS;
}
