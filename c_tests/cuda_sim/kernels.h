// SPDX-License-Identifier: Apache-2.0
// What the library's kernels do, done by the host.
#pragma once

#include "state.h"

#define KERNEL_NAME "kvmem_copy_blocks"
#define ROWS_NAME "kvmem_copy_rows"
#define CHECKSUM_NAME "kvmem_checksum_blocks"

struct kvmem_copy;
struct kvmem_checksum;

/* A copy of its parameter, to be freed. */
const struct kvmem_copy *kernel_parameter(const void *parameter, unsigned long threads, bool of_rows);
const struct kvmem_copy *kernel_copy(const struct kvmem_copy *parameter);
/* Tile by tile as the kernel does. What its context does not reach ends it: CUDA_ERROR_ILLEGAL_ADDRESS. */
CUresult kernel_run(const struct kvmem_copy *asked, const context *on);
/* The same of the one that computes checksums. */
const struct kvmem_checksum *checksum_parameter(const void *parameter, unsigned long threads);
CUresult checksum_run(const struct kvmem_checksum *asked, const context *on);

/* Whether kernels of a context reach all of a range. */
bool kernel_reaches(CUdeviceptr start, size_t size, CUmemAccess_flags needed, const context *on);
