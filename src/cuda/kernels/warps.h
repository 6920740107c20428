/* SPDX-License-Identifier: Apache-2.0 */
/* What the copy kernels have in common: warps that take tiles, and the runs of blocks. */
#ifndef KVMEM_WARPS_H
#define KVMEM_WARPS_H

#include "copy.h"

typedef unsigned long long address;

#define WARP 32u
#define WARPS (KVMEM_COPY_THREADS / WARP)
/* Loads in flight in a thread. */
#define IN_FLIGHT 8
/* CTAs that fit a multiprocessor together: more loads in flight than memory asks for. */
#define CTAS_TOGETHER 2

static __device__ __forceinline__ unsigned smaller(unsigned a, unsigned b) {
    return a < b ? a : b;
}

/* A run: it follows the layers if there are few, and is in host memory otherwise. */
static __device__ __forceinline__ kvmem_copy_run read_run(const kvmem_copy &asked, unsigned index) {
    const uint4 *runs = reinterpret_cast<const uint4 *>(asked.runs);
    const uint4 *few = reinterpret_cast<const uint4 *>(asked.layers + asked.num_layers);
    const uint4 words = asked.runs == 0 ? few[index] : runs[index];
    const kvmem_copy_run run = {words.x, words.y, words.z, words.w};
    return run;
}

#endif
