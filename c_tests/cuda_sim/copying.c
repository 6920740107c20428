// SPDX-License-Identifier: Apache-2.0
// Checks and executes copies.
#include "copying.h"

#include "contexts.h"
#include "spans.h"

#include <stdlib.h>

CUdevice copy_device(const stream *on) {
    return context_current() != NULL ? context_current()->device : on->context->device;
}

CUresult copy_check(const copy *checked, CUdevice device) {
    const range source = {checked->source, checked->size};
    const range destination = {checked->destination, checked->size};
    TRY(check_reach(source, CU_MEM_ACCESS_FLAGS_PROT_READ, checked->source_must_be, device));
    return check_reach(destination, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, checked->destination_must_be, device);
}

CUresult await_legacy_stream(void) {
    stream *legacy = &context_current()->legacy;
    queue_wait_for_stream(legacy);
    return stream_take_error(legacy);
}

CUresult find_healthy_stream(CUstream handle, stream **found) {
    TRY(stream_find(handle, found));
    return stream_take_error(*found);
}

void submit_or_fail(const work *submitted, const call *call) {
    const work failing = {.kind = WORK_FAIL, .stream = submitted->stream, .error = call->later};
    queue_submit(call->later != CUDA_SUCCESS ? &failing : submitted);
}

/* Whether the address is in memory of this device that is not managed. */
static bool is_of(CUdevice device, CUdeviceptr address) {
    const span *known = span_at(address);
    return known != NULL && !known->is_managed && !span_is_host(known) && span_device(known) == device;
}

static bool is_host(CUdeviceptr address) {
    const span *known = span_at(address);
    return known == NULL || span_is_host(known);
}

void copy_submit(const copy *requested, stream *on, bool may_read_early, const call *call) {
    unsigned char *early = NULL;
    if (may_read_early && on->captured == NULL && call->later == CUDA_SUCCESS) {
        early = sim_allocate(requested->size);
        reach_copy((uintptr_t)early, requested->source, requested->size);
    }
    submit_or_fail(&(work){.kind = WORK_COPY, .stream = on, .destination = requested->destination,
                           .source = requested->source, .size = requested->size, .early = early}, call);
}

/* A synchronous copy inside a device returns before the copy is complete; the copy runs on the legacy default
   stream. A copy from pageable memory returns when the source has been read, before the bytes are at the
   destination. */
CUresult copy_now(const copy *requested) {
    const CUdevice device = context_current()->device;
    const bool is_to_device = is_of(device, requested->destination);
    if (is_of(device, requested->source) && is_to_device)
        return copy_on_stream(requested, CU_STREAM_LEGACY, &(call){0});
    TRY(await_legacy_stream());
    TRY(copy_check(requested, device));
    if (is_to_device && span_at(requested->source) == NULL) {
        copy_submit(requested, &context_current()->legacy, true, &(call){0});
    } else {
        reach_copy(requested->destination, requested->source, requested->size);
    }
    return CUDA_SUCCESS;
}

#define EARLY_READ_LIMIT ((size_t)64 << 10)

/* Whether the driver reads the source during the call: a small copy from pageable memory. */
static bool is_read_at_call(const copy *requested) {
    return requested->size > 0 && requested->size <= EARLY_READ_LIMIT && span_at(requested->source) == NULL;
}

/* Whether the call returns after the copy. The driver copies pageable memory through a buffer of its own, and
   copies between host memory on the host. */
static bool is_synchronous(const copy *requested) {
    return span_at(requested->destination) == NULL ||
           (span_at(requested->source) == NULL && requested->size > EARLY_READ_LIMIT) ||
           (is_host(requested->source) && is_host(requested->destination));
}

CUresult copy_on_stream(const copy *requested, CUstream handle, const call *call) {
    TRY_GET(stream *, on, find_healthy_stream(handle, &on));
    TRY(copy_check(requested, copy_device(on)));
    copy_submit(requested, on, is_read_at_call(requested), call);
    if (on->captured == NULL && is_synchronous(requested)) {
        queue_wait_for_stream(on);
    }
    return CUDA_SUCCESS;
}
