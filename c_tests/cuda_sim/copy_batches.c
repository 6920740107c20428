// SPDX-License-Identifier: Apache-2.0
// Many copies in one call, with the parameters of CUDA 12.8.
#include "copying.h"

#define NO_COPY SIZE_MAX

typedef struct batch {
    const CUdeviceptr *destinations, *sources;
    const size_t *sizes;
    size_t count;
    const CUmemcpyAttributes *attributes;
    const size_t *first_copies; /* the first copy that each of the attributes applies to */
    size_t num_attributes;
} batch;

static bool is_valid_attribute(const CUmemcpyAttributes *attribute) {
    const unsigned order = (unsigned)attribute->srcAccessOrder;
    return order >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && order <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY &&
           attribute->flags <= 1;
}

/* The first attribute applies from copy 0, and first_copies is ascending. */
static bool has_valid_attributes(const batch *request) {
    if (request->count == 0 || request->num_attributes == 0 || request->num_attributes > request->count ||
        request->attributes == NULL || request->first_copies == NULL || request->first_copies[0] != 0) {
        return false;
    }
    for (size_t i = 0; i < request->num_attributes; i++) {
        const size_t first = request->first_copies[i];
        if (!is_valid_attribute(&request->attributes[i]) || first >= request->count ||
            (i > 0 && first <= request->first_copies[i - 1])) {
            return false;
        }
    }
    return true;
}

static copy copy_number(const batch *request, size_t i) {
    return (copy){request->destinations[i], request->sources[i], ANY, ANY, request->sizes[i]};
}

/* Returns the index of the first invalid copy, or NO_COPY. */
static size_t find_bad_copy(const batch *request, CUdevice device) {
    for (size_t i = 0; i < request->count; i++) {
        const copy checked = copy_number(request, i);
        if (checked.size == 0 || copy_check(&checked, device) != CUDA_SUCCESS) return i;
    }
    return NO_COPY;
}

/* Whether a copy's source may be read before the stream reaches the copy. */
static bool may_read_early(const batch *request, size_t i) {
    size_t of = request->num_attributes - 1;
    while (request->first_copies[of] > i) of--;
    return request->attributes[of].srcAccessOrder != CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
}

/* In reverse, because copies of a batch have no order. Sources that may be read early are read now. */
static void submit_all(const batch *request, stream *on, const call *call) {
    for (size_t i = request->count; i > 0; i--) {
        const copy requested = copy_number(request, i - 1);
        copy_submit(&requested, on, may_read_early(request, i - 1), call);
    }
}

static CUresult run(const batch *request, CUstream handle, size_t *failed, const call *call) {
    INVALID_IF(!has_valid_attributes(request) || handle == CU_STREAM_LEGACY);
    TRY_GET(stream *, on, find_healthy_stream(handle, &on));
    *failed = find_bad_copy(request, copy_device(on));
    INVALID_IF(*failed != NO_COPY);
    submit_all(request, on, call);
    return CUDA_SUCCESS;
}

/* As in the driver, a NULL stream fails before all other checks and does not write `failed`. */
CUresult cuMemcpyBatchAsync(CUdeviceptr *destinations, CUdeviceptr *sources, size_t *sizes, size_t count,
                            CUmemcpyAttributes *attributes, size_t *first_copies, size_t num_attributes,
                            size_t *failed, CUstream stream) {
    DRIVER_CALL(cuMemcpyBatchAsync);
    INVALID_IF(stream == NULL);
    const batch request = {destinations, sources, sizes, count, attributes, first_copies, num_attributes};
    size_t bad_copy = NO_COPY;
    const CUresult result = run(&request, stream, &bad_copy, &this_call);
    if (failed != NULL) *failed = bad_copy;
    return result;
}
