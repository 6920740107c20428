// SPDX-License-Identifier: Apache-2.0
// Copies of rows at regular distances.
#include "copying.h"

/* The driver's attribute of that name. */
#define MAX_PITCH UINT64_C(2147483647)

static bool is_plain(const CUDA_MEMCPY2D *asked) {
    return asked->srcMemoryType == CU_MEMORYTYPE_UNIFIED && asked->dstMemoryType == CU_MEMORYTYPE_UNIFIED &&
           asked->srcXInBytes == 0 && asked->srcY == 0 && asked->dstXInBytes == 0 && asked->dstY == 0;
}

static copy row(const CUDA_MEMCPY2D *asked, size_t i) {
    return (copy){asked->dstDevice + i * asked->dstPitch, asked->srcDevice + i * asked->srcPitch, ANY, ANY,
                  asked->WidthInBytes};
}

/* From the first byte of the first row to the last of the last it must be one range. */
static CUresult check_rows(const CUDA_MEMCPY2D *asked, CUdevice device) {
    const size_t rows = asked->Height - 1;
    const range source = {asked->srcDevice, rows * asked->srcPitch + asked->WidthInBytes};
    const range destination = {asked->dstDevice, rows * asked->dstPitch + asked->WidthInBytes};
    const CUresult result = check_reach(source, CU_MEM_ACCESS_FLAGS_PROT_READ, ANY, device);
    return result != CUDA_SUCCESS ? result
                                  : check_reach(destination, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, ANY, device);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *asked, CUstream handle) {
    DRIVER_CALL(cuMemcpy2DAsync_v2);
    stream *on = NULL;
    CUresult result = find_healthy_stream(handle, &on);
    RETURN_IF(result != CUDA_SUCCESS, result);
    if (asked == NULL || !is_plain(asked) || asked->srcPitch < asked->WidthInBytes ||
        asked->dstPitch < asked->WidthInBytes || asked->srcPitch > MAX_PITCH || asked->dstPitch > MAX_PITCH) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (asked->WidthInBytes == 0 || asked->Height == 0) {
        return CUDA_SUCCESS;
    }
    result = check_rows(asked, copy_device(on));
    for (size_t i = 0; result == CUDA_SUCCESS && i < asked->Height; i++) {
        const copy each = row(asked, i);
        const work copying = {.kind = WORK_COPY, .stream = on, .destination = each.destination,
                              .source = each.source, .size = each.size};
        submit_or_fail(&copying, &this_call);
    }
    return result;
}
