// SPDX-License-Identifier: Apache-2.0
// Transposes elements of 1 to 16 bytes in scattered blocks: on each side those of another loop are close together.
//
// Some warps take a tile at a time. Neighbouring threads read what is adjacent in the source, put it transposed in shared
// memory, and write what is adjacent in the destination. Elements of one and two bytes are moved in words of four: a thread
// transposes a square of them in its registers. While a tile is written, the next one is on its way here.
#include "matrices.h"

/* Shared memory of a warp: what its threads hold, and a word behind each of its rows, which has at least two words then. */
#define STAGED (HELD_BY_WARP / 2 * 3)

/* A word of `count` elements, `stride` bytes apart, one by one. */
template <typename element>
static __device__ __forceinline__ typename packed<element>::word gathered(address from, unsigned stride, unsigned count) {
    typename packed<element>::word word = 0;
#pragma unroll
    for (unsigned i = 0; i < packed<element>::COUNT; i++) {
        if (i < count) {
            word |= (typename packed<element>::word)*reinterpret_cast<const element *>(from + i * stride)
                    << 8 * sizeof(element) * i;
        }
    }
    return word;
}

template <>
__device__ __forceinline__ uint4 gathered<uint4>(address from, unsigned, unsigned) {
    return *reinterpret_cast<const uint4 *>(from);
}

/* Writes the elements of a word, one by one. */
template <typename element>
static __device__ __forceinline__ void scatter(address to, unsigned stride, unsigned count,
                                               typename packed<element>::word word) {
#pragma unroll
    for (unsigned i = 0; i < packed<element>::COUNT; i++) {
        if (i < count) {
            *reinterpret_cast<element *>(to + i * stride) = (element)(word >> 8 * sizeof(element) * i);
        }
    }
}

template <>
__device__ __forceinline__ void scatter<uint4>(address to, unsigned, unsigned, uint4 word) {
    *reinterpret_cast<uint4 *>(to) = word;
}

/* Loads a thread's share of a tile: squares of elements, word by word. */
template <typename element, bool is_wide>
static __device__ __forceinline__ void load_tile(const kvmem_copy &asked, const party &own, const matrix_tile &tile,
                                                 typename packed<element>::word *held) {
    typedef typename packed<element>::word word;
    const unsigned count = packed<element>::COUNT, shift = asked.columns_shift - packed<element>::SHIFT;
#pragma unroll
    for (unsigned i = 0; i < HELD / sizeof(word); i++) {
        const unsigned square = own.thread + i / count * own.threads;
        const unsigned column = (square & ((1u << shift) - 1)) * count;
        const unsigned row = (square >> shift) * count + i % count;
        if (row < tile.rows && column < tile.columns) {
            const address from = tile.from + (row * asked.source_inner_stride + column * asked.source_column_stride);
            held[i] = is_wide ? *reinterpret_cast<const word *>(from)
                              : gathered<element>(from, asked.source_column_stride, tile.columns - column);
        }
    }
}

/* Words from a column of a staged tile to the next: an odd number, so that neighbouring columns are in different banks. */
static __device__ __forceinline__ unsigned pitch_of(unsigned words_shift) { return 1u << words_shift | 1u; }

/* Puts what a thread holds in shared memory, column by column. */
template <typename element>
static __device__ __forceinline__ void stage_tile(const kvmem_copy &asked, const party &own,
                                                  typename packed<element>::word *held) {
    typedef typename packed<element>::word word;
    const unsigned count = packed<element>::COUNT, shift = asked.columns_shift - packed<element>::SHIFT;
    const unsigned pitch = pitch_of(asked.rows_shift - packed<element>::SHIFT);
    word *staged = reinterpret_cast<word *>(own.staged);
#pragma unroll
    for (unsigned i = 0; i < HELD / sizeof(word); i += count) {
        const unsigned at = own.thread + i / count * own.threads;
        const unsigned column = (at & ((1u << shift) - 1)) * count;
        square<packed<element>::COUNT>::transpose(held + i);
#pragma unroll
        for (unsigned j = 0; j < count; j++) {
            staged[(column + j) * pitch + (at >> shift)] = held[i + j];
        }
    }
}

/* Writes a thread's share of a staged tile. */
template <typename element, bool is_wide>
static __device__ __forceinline__ void write_tile(const kvmem_copy &asked, const party &own, const matrix_tile &tile) {
    typedef typename packed<element>::word word;
    const unsigned count = packed<element>::COUNT, shift = asked.rows_shift - packed<element>::SHIFT;
    const word *staged = reinterpret_cast<const word *>(own.staged);
    // Element by element, the code of all words would be the larger part of this kernel.
#pragma unroll (is_wide ? HELD / sizeof(word) : 2)
    for (unsigned i = 0; i < HELD / sizeof(word); i++) {
        const unsigned at = own.thread + i * own.threads;
        const unsigned column = at >> shift, words = at & ((1u << shift) - 1);
        const unsigned row = words * count;
        if (row < tile.rows && column < tile.columns) {
            const address to =
                tile.to + (row * asked.destination_inner_stride + column * asked.destination_column_stride);
            const word held = staged[column * pitch_of(shift) + words];
            if (is_wide) {
                *reinterpret_cast<word *>(to) = held;
            } else {
                scatter<element>(to, asked.destination_inner_stride, tile.rows - row, held);
            }
        }
    }
}

template <typename element>
static __device__ __forceinline__ void load(const kvmem_copy &asked, const party &own, const matrix_tile &tile,
                                            typename packed<element>::word *held) {
    if (packed<element>::COUNT == 1 || asked.is_source_wide) {
        load_tile<element, true>(asked, own, tile, held);
    } else {
        load_tile<element, false>(asked, own, tile, held);
    }
}

template <typename element>
static __device__ __forceinline__ void write(const kvmem_copy &asked, const party &own, const matrix_tile &tile) {
    if (packed<element>::COUNT == 1 || asked.is_destination_wide) {
        write_tile<element, true>(asked, own, tile);
    } else {
        write_tile<element, false>(asked, own, tile);
    }
}

/* All tiles of a party. A tile is loaded while the one before it is written, and its run is read a tile earlier. */
template <typename element>
static __device__ __forceinline__ void move_tiles(const kvmem_copy &asked, const party &own, unsigned tile, unsigned step) {
    const unsigned tiles_a_run = count_tiles(asked);
    const unsigned total = tiles_a_run * asked.num_runs;
    if (tile >= total) {
        return;
    }
    typename packed<element>::word held[HELD / sizeof(typename packed<element>::word)] = {};
    matrix_tile before = {}; // nothing is staged
    kvmem_copy_run run = read_run(asked, tile / tiles_a_run);
    for (;;) {
        matrix_tile next = before;
        if (tile < total) {
            const kvmem_copy_run coming = read_run(asked, smaller(tile + step, total - 1) / tiles_a_run);
            next = find_tile(asked, run, tile % tiles_a_run);
            load<element>(asked, own, next, held);
            run = coming;
        }
        write<element>(asked, own, before);
        if (tile >= total) {
            return;
        }
        await_party(own); // all have written what is staged
        stage_tile<element>(asked, own, held);
        await_party(own);
        before = next;
        tile += step;
    }
}

extern "C" __global__ void __launch_bounds__(KVMEM_COPY_THREADS, CTAS_TOGETHER)
kvmem_transpose_blocks(const __grid_constant__ kvmem_copy asked) {
    __shared__ uint4 staged[WARPS * STAGED / sizeof(uint4)];
    const party own = find_party(asked, staged, STAGED);
    const unsigned parties = WARPS >> asked.warps_shift;
    const unsigned first = blockIdx.x * parties + own.number, step = gridDim.x * parties;
    switch (asked.unit_size) {
    case 16: move_tiles<uint4>(asked, own, first, step); break;
    case 8: move_tiles<unsigned long long>(asked, own, first, step); break;
    case 4: move_tiles<unsigned>(asked, own, first, step); break;
    case 2: move_tiles<unsigned short>(asked, own, first, step); break;
    default: move_tiles<unsigned char>(asked, own, first, step);
    }
}
