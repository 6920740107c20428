// SPDX-License-Identifier: Apache-2.0
// Checks copies and does them.
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
    const CUresult result =
        check_reach(source, CU_MEM_ACCESS_FLAGS_PROT_READ, checked->source_must_be, device);
    RETURN_IF(result != CUDA_SUCCESS, result);
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

/* Whether it is memory of this device alone. */
static bool is_of(CUdevice device, CUdeviceptr address) {
    const span *known = span_at(address);
    return known != NULL && !known->is_managed && !span_is_host(known) && span_device(known) == device;
}

static bool is_host(CUdeviceptr address) {
    const span *known = span_at(address);
    return known == NULL || span_is_host(known);
}

const unsigned char *copy_read_early(const copy *wanted) {
    unsigned char *bytes = malloc(wanted->size);
    if (bytes == NULL) {
        sim_crash("no memory for the source of a copy");
    }
    reach_copy((uintptr_t)bytes, wanted->source, wanted->size);
    return bytes;
}

/* From pageable memory the bytes have left, and are on their way when the call returns. */
static void send(const copy *wanted) {
    queue_submit(&(work){.kind = WORK_COPY, .stream = &context_current()->legacy,
                         .destination = wanted->destination, .source = wanted->source, .size = wanted->size,
                         .early = copy_read_early(wanted)});
}

/* Inside a device nobody waits for a synchronous copy: it is done when the legacy default stream gets to
 * it. */
CUresult copy_now(const copy *wanted) {
    const CUdevice device = context_current()->device;
    const bool is_to_device = is_of(device, wanted->destination);
    if (is_of(device, wanted->source) && is_to_device) {
        return copy_on_stream(wanted, CU_STREAM_LEGACY, &(call){0});
    }
    CUresult result = await_legacy_stream();
    if (result == CUDA_SUCCESS) {
        result = copy_check(wanted, device);
    }
    if (result == CUDA_SUCCESS && is_to_device && span_at(wanted->source) == NULL) {
        send(wanted);
    } else if (result == CUDA_SUCCESS) {
        reach_copy(wanted->destination, wanted->source, wanted->size);
    }
    return result;
}

#define AT_ONCE ((size_t)64 << 10)

/* Whether the source is host memory that is not page-locked, and little: the driver has it at once. */
static bool is_had_at_once(const copy *wanted) {
    return wanted->size > 0 && wanted->size <= AT_ONCE && span_at(wanted->source) == NULL;
}

/* Whether it is host memory that is not page-locked, where the driver returns when it has had all bytes in its
 * hands, or host memory on both sides, where it copies itself. */
static bool takes_its_time(const copy *wanted) {
    return span_at(wanted->destination) == NULL ||
           (span_at(wanted->source) == NULL && wanted->size > AT_ONCE) ||
           (is_host(wanted->source) && is_host(wanted->destination));
}

CUresult copy_on_stream(const copy *wanted, CUstream handle, const call *call) {
    stream *on = NULL;
    CUresult result = find_healthy_stream(handle, &on);
    if (result == CUDA_SUCCESS) {
        result = copy_check(wanted, copy_device(on));
    }
    if (result == CUDA_SUCCESS) {
        const bool is_early =
            on->captured == NULL && call->later == CUDA_SUCCESS && is_had_at_once(wanted);
        const work copying = {.kind = WORK_COPY, .stream = on, .destination = wanted->destination,
                              .source = wanted->source, .size = wanted->size,
                              .early = is_early ? copy_read_early(wanted) : NULL};
        submit_or_fail(&copying, call);
        if (on->captured == NULL && takes_its_time(wanted)) {
            queue_wait_for_stream(on);
        }
    }
    return result;
}
