// SPDX-License-Identifier: Apache-2.0
// Moves rows of scattered blocks: spans of a few bytes to 2 KiB that have other neighbours on each side, as where heads and
// tokens change places.
//
// A warp takes several rows at a time, word by word, so that it has as many bytes in flight as with long spans. Neighbouring
// threads have neighbouring words of a row.
#include "warps.h"

/* `value / divisor` for products of both below 2^32; the inverse is 2^32 / divisor rounded up, or 0 for 1. */
static __device__ __forceinline__ unsigned quotient(unsigned value, unsigned inverse) {
    return inverse == 0 ? value : __umulhi(value, inverse);
}

/* Where a word of a block lies, from its first row on: in the source, or in the destination. */
template <typename word, bool in_source>
static __device__ __forceinline__ unsigned place_of(const kvmem_copy &asked, unsigned first_row, unsigned index) {
    const unsigned row = quotient(index, asked.words_inverse);
    const unsigned bytes = (index - row * asked.num_words) * (unsigned)sizeof(word);
    const unsigned outer = quotient(first_row + row, asked.inners_inverse);
    const unsigned inner = first_row + row - outer * asked.num_inners;
    return in_source ? outer * (unsigned)asked.source_outer_stride + inner * asked.source_inner_stride + bytes
                     : outer * (unsigned)asked.destination_outer_stride + inner * asked.destination_inner_stride + bytes;
}

/* Keeps the compiler from computing anything with the value that it has computed with the value before: places would take the
 * registers that loads in flight need. */
static __device__ __forceinline__ unsigned forgotten(unsigned value) {
    asm volatile("" : "+r"(value));
    return value;
}

/* Some rows by one warp; all loads of a round are in flight before its first store. Behind the last word, that is loaded
 * again, so that no load waits for a condition. */
template <typename word>
static __device__ __forceinline__ void copy_rows(const kvmem_copy &asked, address to, address from,
                                                 unsigned first_row, unsigned rows) {
    const unsigned count = rows * asked.num_words;
#pragma unroll 1
    for (unsigned done = threadIdx.x % WARP; done < count; done += WARP * IN_FLIGHT) {
        word held[IN_FLIGHT];
#pragma unroll
        for (unsigned i = 0; i < IN_FLIGHT; i++) {
            const unsigned index = smaller(done + i * WARP, count - 1);
            held[i] = *reinterpret_cast<const word *>(from + place_of<word, true>(asked, first_row, index));
        }
        const unsigned again = forgotten(done);
#pragma unroll
        for (unsigned i = 0; i < IN_FLIGHT; i++) {
            const unsigned index = again + i * WARP;
            if (index < count) {
                *reinterpret_cast<word *>(to + place_of<word, false>(asked, first_row, index)) = held[i];
            }
        }
    }
}

/* Tile `index` of a run: layer by layer, block by block, part by part. */
static __device__ __forceinline__ void copy_tile(const kvmem_copy &asked, const kvmem_copy_run &run,
                                                 unsigned index) {
    const unsigned first = index % asked.tiles * asked.tile_size;
    const unsigned rest = index / asked.tiles;
    const unsigned block = rest % asked.max_blocks;
    if (block >= run.length) {
        return; // The run has fewer blocks than the longest.
    }
    const unsigned rows = smaller(asked.num_outers * asked.num_inners - first, asked.tile_size);
    const kvmem_copy_layer &layer = asked.layers[rest / asked.max_blocks];
    const address to = layer.destination + (address)(run.destination + block) * asked.destination_block_stride;
    const address from = layer.source + (address)(run.source + block) * asked.source_block_stride;
    switch (asked.word_size) {
    case 16: copy_rows<uint4>(asked, to, from, first, rows); break;
    case 8: copy_rows<unsigned long long>(asked, to, from, first, rows); break;
    case 4: copy_rows<unsigned>(asked, to, from, first, rows); break;
    case 2: copy_rows<unsigned short>(asked, to, from, first, rows); break;
    default: copy_rows<unsigned char>(asked, to, from, first, rows);
    }
}

/* As in kvmem_copy_blocks: each run is on its way here while the tile before it moves. */
extern "C" __global__ void __launch_bounds__(KVMEM_COPY_THREADS, CTAS_TOGETHER)
kvmem_copy_rows(const __grid_constant__ kvmem_copy asked) {
    const unsigned tiles_a_run = asked.num_layers * asked.tiles * asked.max_blocks;
    const unsigned total = tiles_a_run * asked.num_runs;
    const unsigned step = gridDim.x * WARPS;
    unsigned tile = blockIdx.x * WARPS + threadIdx.x / WARP;
    if (tile >= total) {
        return;
    }
    kvmem_copy_run run = read_run(asked, tile / tiles_a_run);
    for (;;) {
        const unsigned next = tile + step;
        const kvmem_copy_run coming = read_run(asked, smaller(next, total - 1) / tiles_a_run);
        copy_tile(asked, run, tile % tiles_a_run);
        if (next >= total) {
            return;
        }
        tile = next;
        run = coming;
    }
}
