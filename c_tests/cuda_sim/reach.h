// SPDX-License-Identifier: Apache-2.0
// The bytes that an address is mapped to, and whether a device may access them.
#pragma once

#include "state.h"

/* What a range must be: KNOWN to the driver, or ANY, which includes pageable host memory. */
typedef enum must_be { KNOWN, ANY } must_be;

typedef struct range {
    CUdeviceptr start;
    size_t size;
} range;

/* Returns the access that copies on a device have to a range. */
CUmemAccess_flags access_of(const span *span, CUdevice device);

/* Returns CUDA_SUCCESS if a copy on this device has the needed access to the whole range, and otherwise
   CUDA_ERROR_INVALID_VALUE. */
CUresult check_reach(range range, CUmemAccess_flags needed, must_be must_be, CUdevice device);

/* Copy or fill ranges that have been checked. */
void reach_copy(CUdeviceptr destination, CUdeviceptr source, size_t size);
void reach_fill(CUdeviceptr destination, unsigned char value, size_t size);
