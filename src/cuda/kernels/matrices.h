/* SPDX-License-Identifier: Apache-2.0 */
/* What the transposing kernels have in common: matrices in tiles, and parties of warps that take them. */
#ifndef KVMEM_MATRICES_H
#define KVMEM_MATRICES_H

#include "warps.h"

/* Bytes of a tile that a thread has in flight, and its warp. */
#define HELD 64u
#define HELD_BY_WARP (WARP * HELD)

/* How elements are held: some of them in a word. */
template <typename element>
struct packed {
    typedef element word;
    enum { COUNT = 1, SHIFT = 0 };
};
template <>
struct packed<unsigned short> {
    typedef unsigned word;
    enum { COUNT = 2, SHIFT = 1 };
};
template <>
struct packed<unsigned char> {
    typedef unsigned word;
    enum { COUNT = 4, SHIFT = 2 };
};

/* Transposes a square of elements in registers. */
template <unsigned count>
struct square {
    template <typename word>
    static __device__ __forceinline__ void transpose(word *) {}
};
template <>
struct square<2> {
    static __device__ __forceinline__ void transpose(unsigned *rows) {
        const unsigned first = rows[0];
        rows[0] = __byte_perm(first, rows[1], 0x5410);
        rows[1] = __byte_perm(first, rows[1], 0x7632);
    }
};
template <>
struct square<4> {
    static __device__ __forceinline__ void transpose(unsigned *rows) {
        const unsigned low = __byte_perm(rows[0], rows[1], 0x5140), low_after = __byte_perm(rows[2], rows[3], 0x5140);
        const unsigned high = __byte_perm(rows[0], rows[1], 0x7362), high_after = __byte_perm(rows[2], rows[3], 0x7362);
        rows[0] = __byte_perm(low, low_after, 0x5410);
        rows[1] = __byte_perm(low, low_after, 0x7632);
        rows[2] = __byte_perm(high, high_after, 0x5410);
        rows[3] = __byte_perm(high, high_after, 0x7632);
    }
};

/* A tile: its first element on both sides, and what it has of the matrix. */
struct matrix_tile {
    address from, to;
    unsigned rows, columns;
};

/* The warps that move a tile, and a thread's place among them. */
struct party {
    unsigned number; /* of the party in its CTA */
    unsigned thread;
    unsigned threads;
    unsigned char *staged; /* its shared memory */
};

/* The party of this thread. The CTA has `of_warp` bytes of shared memory for each warp. */
static __device__ __forceinline__ party find_party(const kvmem_copy &asked, uint4 *staged, unsigned of_warp) {
    const unsigned warp = threadIdx.x / WARP;
    party own;
    own.number = warp >> asked.warps_shift;
    own.threads = WARP << asked.warps_shift;
    own.thread = threadIdx.x & (own.threads - 1);
    own.staged = reinterpret_cast<unsigned char *>(staged) + (own.number << asked.warps_shift) * of_warp;
    return own;
}

static __device__ __forceinline__ void await_party(const party &own) {
    __barrier_sync_count(own.number, own.threads);
}

static __device__ __forceinline__ unsigned left_of(unsigned all, unsigned first, unsigned most) {
    return first < all ? smaller(all - first, most) : 0;
}

/* Tile `index` of a run: layer by layer, block by block, matrix by matrix, a row of tiles after the other. It is empty where the
 * run has fewer blocks than the longest. */
static __device__ __forceinline__ matrix_tile find_tile(const kvmem_copy &asked, const kvmem_copy_run &run, unsigned index) {
    const unsigned column = index % asked.column_tiles << asked.columns_shift;
    unsigned rest = index / asked.column_tiles;
    const unsigned row = rest % asked.row_tiles << asked.rows_shift;
    rest /= asked.row_tiles;
    const unsigned outer = rest % asked.num_outers;
    rest /= asked.num_outers;
    unsigned block = 0;
    if (!asked.are_joined) {
        block = rest % asked.max_blocks;
        rest /= asked.max_blocks;
    }
    const kvmem_copy_layer &layer = asked.layers[rest];
    const unsigned all_rows = asked.num_inners * (asked.are_joined == KVMEM_JOINED_ROWS ? run.length : 1);
    const unsigned all_columns = asked.num_columns * (asked.are_joined == KVMEM_JOINED_COLUMNS ? run.length : 1);
    matrix_tile found;
    found.rows = block < run.length ? left_of(all_rows, row, 1u << asked.rows_shift) : 0;
    found.columns = left_of(all_columns, column, 1u << asked.columns_shift);
    found.from = layer.source + (address)(run.source + block) * asked.source_block_stride +
                 outer * asked.source_outer_stride + (address)row * asked.source_inner_stride +
                 (address)column * asked.source_column_stride;
    found.to = layer.destination + (address)(run.destination + block) * asked.destination_block_stride +
               outer * asked.destination_outer_stride + (address)row * asked.destination_inner_stride +
               (address)column * asked.destination_column_stride;
    return found;
}

/* Tiles of a run. */
static __device__ __forceinline__ unsigned count_tiles(const kvmem_copy &asked) {
    return asked.num_layers * asked.tiles * (asked.are_joined ? 1 : asked.max_blocks);
}

#endif
