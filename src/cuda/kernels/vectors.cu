// SPDX-License-Identifier: Apache-2.0
// Transposes elements of 1 to 8 bytes in scattered blocks where both sides have whole aligned vectors of 16 bytes.
//
// As in transpose.cu, some warps take a tile at a time, and load the next one while they write it. A thread reads vectors of a
// row, and puts them in shared memory as they are. It then reads a word of as many rows as a vector has elements, transposes these
// in its registers, and writes a vector of each column that the words have.
#include "matrices.h"

/* The accesses of a thread to memory. */
#define VECTOR 16u

/* Vectors of 16 bytes, which threads read along a row and write along a column. */
template <typename element>
struct vectors {
    enum { COUNT = VECTOR / sizeof(element), SHIFT = COUNT == 16 ? 4 : COUNT == 8 ? 3 : COUNT == 4 ? 2 : 1 };
};

/* Where vector `at` of a tile is staged, which is in a group of rows as long as a vector: what threads read at a time, from rows
 * of different groups, is in different banks. */
static __device__ __forceinline__ unsigned place_of(unsigned at, unsigned group, unsigned groups_shift) {
    return at ^ (group << (3 - smaller(groups_shift, 3)) & 7);
}

/* Loads a thread's share of a tile: vectors of its rows. */
template <typename element>
static __device__ __forceinline__ void load_vectors(const kvmem_copy &asked, const party &own, const matrix_tile &tile,
                                                    uint4 *held) {
    const unsigned shift = asked.columns_shift - vectors<element>::SHIFT;
#pragma unroll
    for (unsigned i = 0; i < HELD / VECTOR; i++) {
        const unsigned at = own.thread + i * own.threads;
        const unsigned column = (at & ((1u << shift) - 1)) * vectors<element>::COUNT, row = at >> shift;
        if (row < tile.rows && column < tile.columns) {
            const address from = tile.from + (row * asked.source_inner_stride + column * (unsigned)sizeof(element));
            held[i] = *reinterpret_cast<const uint4 *>(from);
        }
    }
}

/* Puts what a thread holds in shared memory. */
template <typename element>
static __device__ __forceinline__ void stage_vectors(const kvmem_copy &asked, const party &own, const uint4 *held) {
    const unsigned shift = asked.columns_shift, groups_shift = asked.rows_shift - vectors<element>::SHIFT;
    uint4 *staged = reinterpret_cast<uint4 *>(own.staged);
#pragma unroll
    for (unsigned i = 0; i < HELD / VECTOR; i++) {
        const unsigned at = own.thread + i * own.threads;
        staged[place_of(at, at >> shift, groups_shift)] = held[i];
    }
}

/* Writes a thread's share of a staged tile: vectors of the columns that a word of a row has. */
template <typename element>
static __device__ __forceinline__ void write_vectors(const kvmem_copy &asked, const party &own, const matrix_tile &tile) {
    typedef typename packed<element>::word word;
    const unsigned count = packed<element>::COUNT, rows = vectors<element>::COUNT, words = VECTOR / sizeof(word);
    const unsigned shift = asked.columns_shift - vectors<element>::SHIFT;
    const unsigned groups_shift = asked.rows_shift - vectors<element>::SHIFT;
    const word *staged = reinterpret_cast<const word *>(own.staged);
#pragma unroll
    for (unsigned i = 0; i < HELD / VECTOR / count; i++) {
        const unsigned at = own.thread + i * own.threads;
        const unsigned group = at & ((1u << groups_shift) - 1), index = at >> groups_shift;
        const unsigned row = group * rows, column = index * count;
        if (row < tile.rows && column < tile.columns) {
            word held[rows];
#pragma unroll
            for (unsigned j = 0; j < rows; j++) {
                const unsigned vector = ((row + j) << shift) + index / words;
                held[j] = staged[place_of(vector, group, groups_shift) * words + index % words];
            }
#pragma unroll
            for (unsigned j = 0; j < rows; j += count) {
                square<packed<element>::COUNT>::transpose(held + j);
            }
            const address to =
                tile.to + (row * (unsigned)sizeof(element) + column * asked.destination_column_stride);
#pragma unroll
            for (unsigned j = 0; j < count; j++) {
                uint4 vector;
                word *parts = reinterpret_cast<word *>(&vector);
#pragma unroll
                for (unsigned k = 0; k < words; k++) {
                    parts[k] = held[k * count + j];
                }
                *reinterpret_cast<uint4 *>(to + j * asked.destination_column_stride) = vector;
            }
        }
    }
}

/* All tiles of a party. A tile is loaded while the one before it is written, and the place of a tile is computed while the one
 * before it is in flight. */
template <typename element>
static __device__ __forceinline__ void move_vectors(const kvmem_copy &asked, const party &own, unsigned tile, unsigned step) {
    const unsigned tiles_a_run = count_tiles(asked);
    const unsigned total = tiles_a_run * asked.num_runs;
    if (tile >= total) {
        return;
    }
    uint4 held[HELD / VECTOR] = {};
    matrix_tile before = {}; // nothing is staged
    matrix_tile next = find_tile(asked, read_run(asked, tile / tiles_a_run), tile % tiles_a_run);
    kvmem_copy_run run = read_run(asked, smaller(tile + step, total - 1) / tiles_a_run);
    for (;;) {
        if (tile < total) {
            load_vectors<element>(asked, own, next, held);
        }
        write_vectors<element>(asked, own, before);
        if (tile >= total) {
            return;
        }
        tile += step;
        before = next;
        if (tile < total) {
            next = find_tile(asked, run, tile % tiles_a_run);
            run = read_run(asked, smaller(tile + step, total - 1) / tiles_a_run);
        }
        await_party(own); // all have written what is staged
        stage_vectors<element>(asked, own, held);
        await_party(own);
    }
}

extern "C" __global__ void __launch_bounds__(KVMEM_COPY_THREADS, CTAS_TOGETHER)
kvmem_transpose_vectors(const __grid_constant__ kvmem_copy asked) {
    __shared__ uint4 staged[WARPS * HELD_BY_WARP / sizeof(uint4)];
    const party own = find_party(asked, staged, HELD_BY_WARP);
    const unsigned parties = WARPS >> asked.warps_shift;
    const unsigned first = blockIdx.x * parties + own.number, step = gridDim.x * parties;
    switch (asked.unit_size) {
    case 8: move_vectors<unsigned long long>(asked, own, first, step); break;
    case 4: move_vectors<unsigned>(asked, own, first, step); break;
    case 2: move_vectors<unsigned short>(asked, own, first, step); break;
    default: move_vectors<unsigned char>(asked, own, first, step);
    }
}
