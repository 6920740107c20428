// SPDX-License-Identifier: Apache-2.0
// Divides blocks by the polynomial of CRC32C, tile by tile; the host puts the remainders together.
//
// Each thread of a warp divides a part of the tile. A part's share in the tile's remainder is its own remainder times
// x to the power of the bits behind it.
#include "checksum.h"

typedef unsigned long long address;

#define WARP 32u
#define WARPS (KVMEM_CHECKSUM_THREADS / WARP)
#define ALL_LANES 0xFFFFFFFFu
/* x to the power of 0. */
#define ONE 0x80000000u

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

static __device__ __forceinline__ unsigned divide_byte(const unsigned *table, unsigned remainder,
                                                       unsigned byte) {
    return table[(remainder ^ byte) & 255] ^ (remainder >> 8);
}

static __device__ __forceinline__ unsigned divide_word(const unsigned *table, unsigned remainder,
                                                       unsigned word) {
    remainder ^= word;
#pragma unroll
    for (unsigned i = 0; i < 4; i++) {
        remainder = table[remainder & 255] ^ (remainder >> 8);
    }
    return remainder;
}

static __device__ __forceinline__ unsigned divide(const unsigned *table, address from, address end) {
    unsigned remainder = 0;
    for (; from < end && from % sizeof(uint4) != 0; from++) {
        remainder = divide_byte(table, remainder, *reinterpret_cast<const unsigned char *>(from));
    }
    for (; from + sizeof(uint4) <= end; from += sizeof(uint4)) {
        const uint4 words = *reinterpret_cast<const uint4 *>(from);
        remainder = divide_word(table, remainder, words.x);
        remainder = divide_word(table, remainder, words.y);
        remainder = divide_word(table, remainder, words.z);
        remainder = divide_word(table, remainder, words.w);
    }
    for (; from < end; from++) {
        remainder = divide_byte(table, remainder, *reinterpret_cast<const unsigned char *>(from));
    }
    return remainder;
}

/* The remainder of a tile, in every thread of the warp. */
static __device__ __forceinline__ unsigned divide_tile(const kvmem_checksum &asked, const unsigned *table,
                                                       address from, unsigned size) {
    const unsigned lane = threadIdx.x % WARP;
    const unsigned part = ((size + WARP - 1) / WARP + 15) / 16 * 16;
    const unsigned begin = lane * part < size ? lane * part : size;
    const unsigned end = begin + part < size ? begin + part : size;
    unsigned remainder = divide(table, from + begin, from + end);
    const unsigned behind = size - end;
    for (unsigned i = 0; i < KVMEM_CHECKSUM_POWERS; i++) {
        if ((behind >> i & 1) != 0) {
            remainder = product(remainder, asked.powers[i]);
        }
    }
    for (unsigned distance = WARP / 2; distance > 0; distance /= 2) {
        remainder ^= __shfl_xor_sync(ALL_LANES, remainder, distance);
    }
    return remainder;
}

extern "C" __global__ void __launch_bounds__(KVMEM_CHECKSUM_THREADS)
kvmem_checksum_blocks(const __grid_constant__ kvmem_checksum asked) {
    __shared__ unsigned table[256];
    for (unsigned byte = threadIdx.x; byte < 256; byte += KVMEM_CHECKSUM_THREADS) {
        unsigned remainder = byte;
        for (unsigned bit = 0; bit < 8; bit++) {
            remainder = times_x(remainder);
        }
        table[byte] = remainder;
    }
    __syncthreads();
    const unsigned tiles_a_block = asked.num_layers * asked.num_outers * asked.tiles;
    const unsigned total = tiles_a_block * asked.num_blocks;
    for (unsigned tile = blockIdx.x * WARPS + threadIdx.x / WARP; tile < total; tile += gridDim.x * WARPS) {
        const unsigned block = reinterpret_cast<const unsigned *>(asked.blocks)[tile / tiles_a_block];
        const unsigned slot = tile % tiles_a_block / asked.tiles;
        const address offset = (address)(tile % asked.tiles) * asked.tile_size;
        const address left = asked.piece_size - offset;
        const address from = asked.layers[slot / asked.num_outers] +
                             slot % asked.num_outers * asked.outer_stride + block * asked.block_stride + offset;
        const unsigned size = left < asked.tile_size ? (unsigned)left : asked.tile_size;
        const unsigned remainder = divide_tile(asked, table, from, size);
        if (threadIdx.x % WARP == 0) {
            reinterpret_cast<unsigned *>(asked.remainders)[tile] = remainder;
        }
    }
}
