// SPDX-License-Identifier: Apache-2.0
// The part of CUDA C++ that is needed to compile the copy kernels for the CPU. The threads of a CTA run one
// after the other; at a barrier the next one continues.
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

// Selects four of the eight bytes of `a` and `b`.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector)
{
    const uint64_t bytes = uint64_t{b} << 32 | a;
    unsigned selected = 0;
    for (unsigned i = 0; i < 4; ++i)
        selected |= static_cast<unsigned>(bytes >> 8 * (selector >> 4 * i & 7) & 0xFF) << 8 * i;
    return selected;
}

// Waits until `threads` threads wait at a barrier of this number.
void __barrier_sync_count(unsigned number, unsigned threads);

#define __device__
#define __global__
#define __shared__ static
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
