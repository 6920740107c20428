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

void copy_submit(const copy *wanted, stream *on, bool may_read_early, const call *call) {
    unsigned char *early = NULL;
    if (may_read_early && on->captured == NULL && call->later == CUDA_SUCCESS) {
        early = sim_allocate(wanted->size);
        reach_copy((uintptr_t)early, wanted->source, wanted->size);
    }
    submit_or_fail(&(work){.kind = WORK_COPY, .stream = on, .destination = wanted->destination,
                           .source = wanted->source, .size = wanted->size, .early = early}, call);
}

/* A synchronous copy inside a device returns before the copy is complete; the copy runs on the legacy default stream.
   A copy from pageable memory returns when the source has been read, before the bytes are at the destination. */
CUresult copy_now(const copy *wanted) {
    const CUdevice device = context_current()->device;
    const bool is_to_device = is_of(device, wanted->destination);
    if (is_of(device, wanted->source) && is_to_device)
        return copy_on_stream(wanted, CU_STREAM_LEGACY, &(call){0});
    TRY(await_legacy_stream());
    TRY(copy_check(wanted, device));
    if (is_to_device && span_at(wanted->source) == NULL) {
        copy_submit(wanted, &context_current()->legacy, true, &(call){0});
    } else {
        reach_copy(wanted->destination, wanted->source, wanted->size);
    }
    return CUDA_SUCCESS;
}

#define EARLY_READ_LIMIT ((size_t)64 << 10)

/* Whether the driver reads the source during the call: a small copy from pageable memory. */
static bool is_read_at_call(const copy *wanted) {
    return wanted->size > 0 && wanted->size <= EARLY_READ_LIMIT && span_at(wanted->source) == NULL;
}

/* Whether the call returns after the copy. The driver copies pageable memory through a buffer of its own, and copies
   between host memory on the host. */
static bool is_synchronous(const copy *wanted) {
    return span_at(wanted->destination) == NULL ||
           (span_at(wanted->source) == NULL && wanted->size > EARLY_READ_LIMIT) ||
           (is_host(wanted->source) && is_host(wanted->destination));
}

CUresult copy_on_stream(const copy *wanted, CUstream handle, const call *call) {
    stream *on = NULL;
    TRY(find_healthy_stream(handle, &on));
    TRY(copy_check(wanted, copy_device(on)));
    copy_submit(wanted, on, is_read_at_call(wanted), call);
    if (on->captured == NULL && is_synchronous(wanted)) {
        queue_wait_for_stream(on);
    }
    return CUDA_SUCCESS;
}
