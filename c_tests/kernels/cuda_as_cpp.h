// SPDX-License-Identifier: Apache-2.0
// The part of CUDA C++ that is needed to compile the copy kernels for the CPU. The kernels have no
// communication between threads, so their threads can run one after the other.
#pragma once

#include <cstdint>
#include <cstring>

struct uint4 {
    unsigned x, y, z, w;
};

struct index3 {
    unsigned x = 0, y = 0, z = 0;
};

extern index3 threadIdx, blockIdx, gridDim;

inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(uint64_t{a} * b >> 32); }

#define __device__
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
