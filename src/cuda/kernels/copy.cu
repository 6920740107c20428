// SPDX-License-Identifier: Apache-2.0
// Moves scattered blocks between any memory that the device reaches: its own, a peer's, mapped host memory.
//
// The geometry gives every address, so that only runs of block ids are read. Each warp takes a tile at a
// time, with eight 16-byte loads in flight in every thread.
#include "warps.h"

/* `count` words by one warp; all loads of a full round are in flight before its first store. */
template <typename word>
static __device__ __forceinline__ void copy_words(address to, address from, unsigned count) {
    const unsigned lane = threadIdx.x % WARP;
    const word *source = reinterpret_cast<const word *>(from) + lane;
    word *destination = reinterpret_cast<word *>(to) + lane;
    unsigned done = 0;
#pragma unroll 1
    for (; done + WARP * IN_FLIGHT <= count; done += WARP * IN_FLIGHT) {
        word held[IN_FLIGHT];
#pragma unroll
        for (unsigned i = 0; i < IN_FLIGHT; i++) {
            held[i] = source[done + i * WARP];
        }
#pragma unroll
        for (unsigned i = 0; i < IN_FLIGHT; i++) {
            destination[done + i * WARP] = held[i];
        }
    }
    /* The rest in rounds of two, the second of which may be partly empty. */
#pragma unroll 1
    for (done += lane; done < count; done += 2 * WARP) {
        const word first = source[done - lane];
        const bool has_second = done + WARP < count;
        word second;
        if (has_second) {
            second = source[done - lane + WARP];
        }
        destination[done - lane] = first;
        if (has_second) {
            destination[done - lane + WARP] = second;
        }
    }
}

/* Fewer bytes than a warp has threads. */
static __device__ __forceinline__ void copy_few(address to, address from, unsigned count) {
    const unsigned lane = threadIdx.x % WARP;
    if (lane < count) {
        reinterpret_cast<unsigned char *>(to)[lane] = reinterpret_cast<const unsigned char *>(from)[lane];
    }
}

/* Words of the greatest width that both sides can have, and the bytes before and after them one by one. */
template <typename word>
static __device__ __forceinline__ void copy_in_words(address to, address from, unsigned size) {
    const unsigned head = smaller((unsigned)(0 - to) % sizeof(word), size);
    const unsigned words = (size - head) / sizeof(word);
    const unsigned tail = head + words * (unsigned)sizeof(word);
    copy_few(to, from, head);
    copy_words<word>(to + head, from + head, words);
    copy_few(to + tail, from + tail, size - tail);
}

/* Both sides are not equally aligned. Apart from the rest, which would pay for it with registers. */
static __device__ __noinline__ void copy_narrow(address to, address from, unsigned size) {
    const unsigned apart = (unsigned)(to ^ from);
    if (apart % 8 == 0) {
        copy_in_words<unsigned long long>(to, from, size);
    } else if (apart % 4 == 0) {
        copy_in_words<unsigned>(to, from, size);
    } else if (apart % 2 == 0) {
        copy_in_words<unsigned short>(to, from, size);
    } else {
        copy_words<unsigned char>(to, from, size);
    }
}

static __device__ __forceinline__ void copy_bytes(address to, address from, unsigned size) {
    if ((unsigned)(to ^ from) % 16 == 0) {
        copy_in_words<uint4>(to, from, size);
    } else {
        copy_narrow(to, from, size);
    }
}

/* Tile `index` of a run: layer by layer, slot by slot, block by block, part by part. */
static __device__ __forceinline__ void copy_tile(const kvmem_copy &asked, const kvmem_copy_run &run,
                                                 unsigned index) {
    unsigned block = 0;
    unsigned rest = index / asked.tiles;
    const unsigned part = index % asked.tiles;
    if (!asked.are_joined) {
        block = rest % asked.max_blocks;
        rest /= asked.max_blocks;
    }
    const unsigned outer = rest % asked.num_outers;
    const kvmem_copy_layer &layer = asked.layers[rest / asked.num_outers];
    const address size = asked.are_joined ? asked.unit_size * run.length : asked.unit_size;
    const address offset = (address)part * asked.tile_size;
    if (block >= run.length || offset >= size) {
        return; // The run has fewer blocks than the longest.
    }
    const address left = size - offset;
    copy_bytes(layer.destination + outer * asked.destination_outer_stride +
                   (address)(run.destination + block) * asked.destination_block_stride + offset,
               layer.source + outer * asked.source_outer_stride +
                   (address)(run.source + block) * asked.source_block_stride + offset,
               left < asked.tile_size ? (unsigned)left : asked.tile_size);
}

/* All warps go over the tiles side by side, so that what is read and written at a time lies close together. Host memory
 * is microseconds away: each run is on its way here while the tile before it moves. */
extern "C" __global__ void __launch_bounds__(KVMEM_COPY_THREADS, CTAS_TOGETHER)
kvmem_copy_blocks(const __grid_constant__ kvmem_copy asked) {
    const unsigned tiles_a_run =
        asked.num_layers * asked.num_outers * asked.tiles * (asked.are_joined ? 1 : asked.max_blocks);
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
