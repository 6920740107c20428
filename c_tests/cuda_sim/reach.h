// SPDX-License-Identifier: Apache-2.0
// Which bytes lie behind an address, and whether a device may reach them.
#pragma once

#include "state.h"

/* What a range must be: KNOWN to the driver, or ANY: also host memory that the driver has never heard of. */
typedef enum must_be { KNOWN, ANY } must_be;

typedef struct range {
    CUdeviceptr start;
    size_t size;
} range;

/* How a device may reach a range, in copies. */
CUmemAccess_flags access_of(const span *span, CUdevice device);

/* Whether a copy on this device may read, or write, the range: CUDA_SUCCESS or CUDA_ERROR_INVALID_VALUE. */
CUresult check_reach(range range, CUmemAccess_flags needed, must_be must_be, CUdevice device);

/* Both after they have been checked. */
void reach_copy(CUdeviceptr destination, CUdeviceptr source, size_t size);
void reach_fill(CUdeviceptr destination, unsigned char value, size_t size);
