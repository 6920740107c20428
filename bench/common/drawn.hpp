// SPDX-License-Identifier: Apache-2.0
// Row 19: transfers drawn at random from a seed, and the shapes of engines' caches.
#pragma once

#include "common/kv.hpp"

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace bench {

// How the blocks that move are placed in host memory.
enum class host_order {
    scattered,
    in_runs, // 8 adjacent blocks, then 8 elsewhere
    contiguous,
};

// What the GPU computes meanwhile, and what kvmem is told.
enum class compute {
    told_idle, // nothing, and the options say so
    idle,      // nothing, with default options
    beside,    // products back to back, with default options
};

// One transfer between a GPU and page-locked host memory.
struct drawn {
    std::string shape; // "blocks", or the engine whose cache it is
    kvmem_layout_config gpu;
    kvmem_layout_config host;
    uint32_t blocks; // that move; each side has twice as many
    host_order order;
    bool to_device;
    bench::compute compute;

    uint64_t block_bytes() const;
    uint64_t bytes() const { return blocks * block_bytes(); }
    uint64_t piece_bytes() const;
    std::string title() const;
    kv::pairs pairs() const;
};

const char *name_of(host_order order);
const char *name_of(compute meanwhile);

// Blocks of one piece: 512 bytes to 8 MiB, a multiple of 16 and no power of two; 1 to 65,536 of them, `most_bytes`
// in all. Sizes and counts are uniform in the logarithm.
drawn draw_blocks(std::mt19937_64 &random, uint64_t most_bytes);

// One of the caches of engines (KV heads and sizes of common models), with a number of blocks drawn the same way.
drawn draw_engine(std::mt19937_64 &random, uint64_t most_bytes);

} // namespace bench
