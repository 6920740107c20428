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
    TRY(check_reach(source, CU_MEM_ACCESS_FLAGS_PROT_READ, ANY, device));
    return check_reach(destination, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, ANY, device);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *asked, CUstream handle) {
    DRIVER_CALL(cuMemcpy2DAsync_v2);
    stream *on = NULL;
    TRY(find_healthy_stream(handle, &on));
    INVALID_IF(asked == NULL || !is_plain(asked));
    INVALID_IF(asked->srcPitch < asked->WidthInBytes || asked->srcPitch > MAX_PITCH);
    INVALID_IF(asked->dstPitch < asked->WidthInBytes || asked->dstPitch > MAX_PITCH);
    RETURN_IF(asked->WidthInBytes == 0 || asked->Height == 0, CUDA_SUCCESS);
    TRY(check_rows(asked, copy_device(on)));
    for (size_t i = 0; i < asked->Height; i++) {
        const copy each = row(asked, i);
        copy_submit(&each, on, false, &this_call);
    }
    return CUDA_SUCCESS;
}
