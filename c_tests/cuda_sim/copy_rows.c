// SPDX-License-Identifier: Apache-2.0
// Copies of rows with a pitch.
#include "copying.h"

/* The value of the attribute MAX_PITCH. */
#define MAX_PITCH UINT64_C(2147483647)

static bool is_plain(const CUDA_MEMCPY2D *request) {
    return request->srcMemoryType == CU_MEMORYTYPE_UNIFIED && request->dstMemoryType == CU_MEMORYTYPE_UNIFIED &&
           request->srcXInBytes == 0 && request->srcY == 0 && request->dstXInBytes == 0 && request->dstY == 0;
}

static copy row(const CUDA_MEMCPY2D *request, size_t i) {
    return (copy){request->dstDevice + i * request->dstPitch, request->srcDevice + i * request->srcPitch, ANY,
                  ANY,
                  request->WidthInBytes};
}

/* The addresses from the first row to the end of the last row must be one range. */
static CUresult check_rows(const CUDA_MEMCPY2D *request, CUdevice device) {
    const size_t rows = request->Height - 1;
    const range source = {request->srcDevice, rows * request->srcPitch + request->WidthInBytes};
    const range destination = {request->dstDevice, rows * request->dstPitch + request->WidthInBytes};
    TRY(check_reach(source, CU_MEM_ACCESS_FLAGS_PROT_READ, ANY, device));
    return check_reach(destination, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, ANY, device);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *request, CUstream handle) {
    DRIVER_CALL(cuMemcpy2DAsync_v2);
    TRY_GET(stream *, on, find_healthy_stream(handle, &on));
    INVALID_IF(request == NULL || !is_plain(request));
    INVALID_IF(request->srcPitch < request->WidthInBytes || request->srcPitch > MAX_PITCH);
    INVALID_IF(request->dstPitch < request->WidthInBytes || request->dstPitch > MAX_PITCH);
    RETURN_IF(request->WidthInBytes == 0 || request->Height == 0, CUDA_SUCCESS);
    TRY(check_rows(request, copy_device(on)));
    for (size_t i = 0; i < request->Height; i++) {
        const copy each = row(request, i);
        copy_submit(&each, on, false, &this_call);
    }
    return CUDA_SUCCESS;
}
