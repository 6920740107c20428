// SPDX-License-Identifier: Apache-2.0
// Divides blocks by the polynomial of CRC32C, tile by tile.
//
// A warp reads a tile row by row, each thread every 32nd word: neighbours read neighbours. A thread takes its remainder
// a row further by looking up what its bits are there, in shared memory where each thread of a warp has a copy in its own
// bank. In the end each remainder is multiplied by what is behind its last word; the sum is the tile's.
#include "checksum.h"

typedef unsigned long long address;

#define WARP 32u
#define WARPS (KVMEM_CHECKSUM_THREADS / WARP)
#define ALL_LANES 0xFFFFFFFFu
#define WORD 4u
#define ROW (WARP * WORD)
/* Rows that a thread reads before it divides them. */
#define DEPTH 8u
/* CTAs of a multiprocessor. */
#define CTAS 3
/* x to the power of 0. */
#define ONE 0x80000000u
/* A remainder in parts: of 6, 6, 5, 5, 5 and 5 bits. */
#define ENTRIES (2 * 64 + 4 * 32)

static __device__ __forceinline__ unsigned times_x(unsigned a) {
    return (a >> 1) ^ ((a & 1) != 0 ? KVMEM_CHECKSUM_POLYNOMIAL : 0);
}

static __device__ __forceinline__ unsigned product(unsigned a, unsigned b) {
    unsigned sum = 0;
#pragma unroll 4
    for (unsigned i = 0; i < 32; i++) {
        sum ^= (a & (ONE >> i)) != 0 ? b : 0;
        b = times_x(b);
    }
    return sum;
}

static __device__ __forceinline__ unsigned load(address from) {
    return *reinterpret_cast<const unsigned *>(from);
}

/* What a part of a remainder is a row further. */
static __device__ __forceinline__ unsigned entry(const kvmem_checksum &asked, unsigned index) {
    const unsigned part = index < 128 ? index / 64 : 2 + (index - 128) / 32;
    const unsigned lowest = part < 2 ? 6 * part : 12 + 5 * (part - 2);
    const unsigned bits = part < 2 ? index % 64 : index % 32;
    unsigned sum = 0;
    for (unsigned bit = 0; bit < (part < 2 ? 6 : 5); bit++) {
        sum ^= (bits >> bit & 1) != 0 ? asked.further[lowest + bit] : 0;
    }
    return sum;
}

/* A remainder a row further. */
static __device__ __forceinline__ unsigned further(const unsigned *table, unsigned remainder) {
    return table[(remainder & 63) * WARP] ^ table[(64 + (remainder >> 6 & 63)) * WARP] ^
           table[(128 + (remainder >> 12 & 31)) * WARP] ^ table[(160 + (remainder >> 17 & 31)) * WARP] ^
           table[(192 + (remainder >> 22 & 31)) * WARP] ^ table[(224 + (remainder >> 27)) * WARP];
}

/* Few bytes behind those of a remainder, the same in every thread. */
static __device__ __forceinline__ unsigned divide_bytes(unsigned remainder, address from, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        remainder ^= *reinterpret_cast<const unsigned char *>(from + i);
        for (unsigned bit = 0; bit < 8; bit++) {
            remainder = times_x(remainder);
        }
    }
    return remainder;
}

/* Words behind the bytes of a remainder, at least one. The last row is a whole one; of the first, words may be missing.
 * `power` is what is behind the thread's last word, and that word. */
static __device__ __forceinline__ unsigned divide_words(const unsigned *table, unsigned before, address from,
                                                        unsigned count, unsigned power) {
    const unsigned lane = threadIdx.x % WARP;
    const unsigned rows = (count + WARP - 1) / WARP;
    const unsigned missing = rows * WARP - count;
    address at = from + lane * WORD - missing * WORD;
    unsigned remainder = 0;
    unsigned row = 0;
    if (missing != 0 || before != 0) {
        if (lane >= missing) {
            remainder = load(at) ^ (lane == missing ? before : 0);
        }
        at += ROW;
        row = 1;
    }
    unsigned words[DEPTH];
    for (; row + DEPTH <= rows; row += DEPTH) {
#pragma unroll
        for (unsigned i = 0; i < DEPTH; i++) {
            words[i] = load(at + i * ROW);
        }
#pragma unroll
        for (unsigned i = 0; i < DEPTH; i++) {
            remainder = further(table, remainder) ^ words[i];
        }
        at += DEPTH * ROW;
    }
#pragma unroll
    for (unsigned i = 0; i < DEPTH; i++) {
        words[i] = row + i < rows ? load(at + i * ROW) : 0;
    }
#pragma unroll
    for (unsigned i = 0; i < DEPTH; i++) {
        if (row + i < rows) {
            remainder = further(table, remainder) ^ words[i];
        }
    }
    remainder = product(remainder, power);
    for (unsigned distance = WARP / 2; distance > 0; distance /= 2) {
        remainder ^= __shfl_xor_sync(ALL_LANES, remainder, distance);
    }
    return remainder;
}

/* The remainder of a tile, in every thread of the warp. */
static __device__ __forceinline__ unsigned divide_tile(const unsigned *table, address from, unsigned size,
                                                       unsigned power) {
    const unsigned to_word = (unsigned)(0 - from) % WORD;
    const unsigned head = to_word < size ? to_word : size;
    const unsigned count = (size - head) / WORD;
    const address end = from + head + (address)count * WORD;
    unsigned remainder = divide_bytes(0, from, head);
    if (count != 0) {
        remainder = divide_words(table, remainder, from + head, count, power);
    }
    return divide_bytes(remainder, end, size - head - count * WORD);
}

extern "C" __global__ void __launch_bounds__(KVMEM_CHECKSUM_THREADS, CTAS)
kvmem_checksum_blocks(const __grid_constant__ kvmem_checksum asked) {
    __shared__ unsigned tables[ENTRIES * WARP];
    const unsigned lane = threadIdx.x % WARP;
    for (unsigned index = threadIdx.x / WARP; index < ENTRIES; index += WARPS) {
        tables[index * WARP + lane] = entry(asked, index);
    }
    __syncthreads();
    const unsigned power = asked.words[lane];
    const unsigned tiles_a_block = asked.num_layers * asked.num_outers * asked.tiles;
    const unsigned total = tiles_a_block * asked.num_blocks;
    for (unsigned tile = blockIdx.x * WARPS + threadIdx.x / WARP; tile < total; tile += gridDim.x * WARPS) {
        const unsigned index = tile / tiles_a_block;
        const unsigned within = tile % tiles_a_block;
        const unsigned slot = within / asked.tiles;
        const unsigned block = reinterpret_cast<const unsigned *>(asked.blocks)[index];
        const unsigned behind = reinterpret_cast<const unsigned *>(asked.behind)[within];
        const address offset = (address)(within % asked.tiles) * asked.tile_size;
        const address left = asked.piece_size - offset;
        const address from = asked.layers[slot / asked.num_outers] +
                             slot % asked.num_outers * asked.outer_stride + block * asked.block_stride + offset;
        const unsigned size = left < asked.tile_size ? (unsigned)left : asked.tile_size;
        unsigned share = divide_tile(tables + lane, from, size, power);
        if (behind != ONE) {
            share = product(share, behind);
        }
        if (lane == 0) {
            atomicXor(reinterpret_cast<unsigned *>(asked.checksums) + index, share);
        }
    }
}
