// SPDX-License-Identifier: Apache-2.0
// What the library's kernel does, done by the host.
#ifndef CUDA_SIM_KERNELS_H
#define CUDA_SIM_KERNELS_H

#include "state.h"

#define KERNEL_NAME "kvmem_copy_blocks"

struct kvmem_copy;

/* A copy of its parameter, to be freed. */
const struct kvmem_copy *kernel_parameter(const void *parameter, unsigned long threads);
const struct kvmem_copy *kernel_copy(const struct kvmem_copy *parameter);
/* Tile by tile as the kernel does. What its context does not reach ends it: CUDA_ERROR_ILLEGAL_ADDRESS. */
CUresult kernel_run(const struct kvmem_copy *asked, const context *on);

#endif
