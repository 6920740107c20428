// SPDX-License-Identifier: Apache-2.0
// Checks copies and does them.
#include "copying.h"

#include "contexts.h"
#include "spans.h"

CUdevice copy_device(const stream *on) {
    return context_current() != NULL ? context_current()->device : on->context->device;
}

CUresult copy_check(const copy *checked, CUdevice device) {
    const range source = {checked->source, checked->size};
    const range destination = {checked->destination, checked->size};
    const CUresult result =
        check_reach(source, CU_MEM_ACCESS_FLAGS_PROT_READ, checked->source_must_be, device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return check_reach(destination, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, checked->destination_must_be, device);
}

CUresult await_legacy_stream(void) {
    stream *legacy = &context_current()->legacy;
    queue_wait_for_stream(legacy);
    return stream_take_error(legacy);
}

CUresult find_healthy_stream(CUstream handle, stream **found) {
    const CUresult result = stream_find(handle, found);
    return result == CUDA_SUCCESS ? stream_take_error(*found) : result;
}

void submit_or_fail(const work *submitted, const call *call) {
    if (call->later != CUDA_SUCCESS) {
        queue_submit(&(work){.kind = WORK_FAIL, .stream = submitted->stream, .error = call->later});
    } else {
        queue_submit(submitted);
    }
}

CUresult copy_now(const copy *wanted) {
    CUresult result = await_legacy_stream();
    if (result == CUDA_SUCCESS) {
        result = copy_check(wanted, context_current()->device);
    }
    if (result == CUDA_SUCCESS) {
        reach_copy(wanted->destination, wanted->source, wanted->size);
    }
    return result;
}

/* Whether it is host memory that is not page-locked, where the driver returns when it has had all bytes in
 * its hands: little that is only read it has at once. */
static bool takes_its_time(const copy *wanted) {
    const size_t at_once = 64 << 10;
    return span_at(wanted->destination) == NULL ||
           (span_at(wanted->source) == NULL && wanted->size > at_once);
}

CUresult copy_on_stream(const copy *wanted, CUstream handle, const call *call) {
    stream *on = NULL;
    CUresult result = find_healthy_stream(handle, &on);
    if (result == CUDA_SUCCESS) {
        result = copy_check(wanted, copy_device(on));
    }
    if (result == CUDA_SUCCESS) {
        const work copying = {.kind = WORK_COPY, .stream = on, .destination = wanted->destination,
                              .source = wanted->source, .size = wanted->size};
        submit_or_fail(&copying, call);
        if (on->captured == NULL && takes_its_time(wanted)) {
            queue_wait_for_stream(on);
        }
    }
    return result;
}
