// SPDX-License-Identifier: Apache-2.0
// Many copies in one call, the form of CUDA 12.8.
#include "copying.h"

#define NO_COPY SIZE_MAX

typedef struct batch {
    const CUdeviceptr *destinations, *sources;
    const size_t *sizes;
    size_t count;
    const CUmemcpyAttributes *attributes;
    const size_t *first_copies; /* that each of the attributes is for */
    size_t num_attributes;
} batch;

static bool is_valid_attribute(const CUmemcpyAttributes *attribute) {
    const unsigned order = (unsigned)attribute->srcAccessOrder;
    return order >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && order <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY &&
           attribute->flags <= 1;
}

/* Attributes begin with the first copy and come in order. */
static bool has_valid_attributes(const batch *asked) {
    if (asked->count == 0 || asked->num_attributes == 0 || asked->num_attributes > asked->count ||
        asked->attributes == NULL || asked->first_copies == NULL || asked->first_copies[0] != 0) {
        return false;
    }
    for (size_t i = 0; i < asked->num_attributes; i++) {
        const size_t first = asked->first_copies[i];
        if (!is_valid_attribute(&asked->attributes[i]) || first >= asked->count ||
            (i > 0 && first <= asked->first_copies[i - 1])) {
            return false;
        }
    }
    return true;
}

static copy copy_number(const batch *asked, size_t i) {
    return (copy){asked->destinations[i], asked->sources[i], ANY, ANY, asked->sizes[i]};
}

/* The first copy that can't be done. */
static size_t find_bad_copy(const batch *asked, CUdevice device) {
    for (size_t i = 0; i < asked->count; i++) {
        const copy checked = copy_number(asked, i);
        if (checked.size == 0 || copy_check(&checked, device) != CUDA_SUCCESS) return i;
    }
    return NO_COPY;
}

/* Whether a copy's source may be read before the stream gets to it. */
static bool may_be_early(const batch *asked, size_t i) {
    size_t of = asked->num_attributes - 1;
    while (asked->first_copies[of] > i) of--;
    return asked->attributes[of].srcAccessOrder != CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
}

/* The last first: copies of a batch have no order. What may be read early is read now. */
static void submit_all(const batch *asked, stream *on, const call *call) {
    for (size_t i = asked->count; i > 0; i--) {
        const copy wanted = copy_number(asked, i - 1);
        copy_submit(&wanted, on, may_be_early(asked, i - 1), call);
    }
}

static CUresult run(const batch *asked, CUstream handle, size_t *failed, const call *call) {
    INVALID_IF(!has_valid_attributes(asked) || handle == CU_STREAM_LEGACY);
    stream *on = NULL;
    TRY(find_healthy_stream(handle, &on));
    *failed = find_bad_copy(asked, copy_device(on));
    INVALID_IF(*failed != NO_COPY);
    submit_all(asked, on, call);
    return CUDA_SUCCESS;
}

/* The NULL stream is refused before anything is looked at, `failed` too. */
CUresult cuMemcpyBatchAsync(CUdeviceptr *destinations, CUdeviceptr *sources, size_t *sizes, size_t count,
                            CUmemcpyAttributes *attributes, size_t *first_copies, size_t num_attributes,
                            size_t *failed, CUstream stream) {
    DRIVER_CALL(cuMemcpyBatchAsync);
    INVALID_IF(stream == NULL);
    const batch asked = {destinations, sources, sizes, count, attributes, first_copies, num_attributes};
    size_t bad_copy = NO_COPY;
    const CUresult result = run(&asked, stream, &bad_copy, &this_call);
    if (failed != NULL) *failed = bad_copy;
    return result;
}
