// SPDX-License-Identifier: Apache-2.0
// The library's kernels, executed by the host.
#pragma once

#include "state.h"

#define KERNEL_NAME "kvmem_copy_blocks"
#define ROWS_NAME "kvmem_copy_rows"
#define TRANSPOSE_NAME "kvmem_transpose_blocks"
#define VECTORS_NAME "kvmem_transpose_vectors"
#define CHECKSUM_NAME "kvmem_checksum_blocks"

struct kvmem_copy;
struct kvmem_checksum;

/* The kernels that copy. */
typedef enum copy_kernel { COPY_BLOCKS, COPY_ROWS, TRANSPOSE_BLOCKS, TRANSPOSE_VECTORS } copy_kernel;

/* Checks a launch of one of them, and returns a copy of the parameter, which the caller frees. */
const struct kvmem_copy *kernel_parameter(const void *parameter, unsigned long threads, copy_kernel launched);
const struct kvmem_copy *kernel_copy(const struct kvmem_copy *parameter);
/* Copies the tiles that the kernel copies. Fails with CUDA_ERROR_ILLEGAL_ADDRESS if the context has no
   access. */
CUresult kernel_run(const struct kvmem_copy *copy, const context *on);
/* The same for the checksum kernel. */
const struct kvmem_checksum *checksum_parameter(const void *parameter, unsigned long threads);
CUresult checksum_run(const struct kvmem_checksum *checksum, const context *on);

/* Returns whether kernels of a context have the needed access to a whole range. */
bool kernel_reaches(CUdeviceptr start, size_t size, CUmemAccess_flags needed, const context *on);
