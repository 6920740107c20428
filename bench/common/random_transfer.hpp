// SPDX-License-Identifier: Apache-2.0
// Row 19: transfers drawn at random from a seed, and the shapes of engines' caches.
#pragma once

#include "common/kv.hpp"

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace bench {

// The order in host memory of the blocks that move.
enum class host_order {
    scattered,
    in_runs, // 8 adjacent blocks, then 8 elsewhere
    contiguous,
};

// The work of the GPU during the transfer, and the options.
enum class compute {
    declared_idle, // none, and the options say so
    idle,          // none, with default options
    beside,        // matrix products back to back, with default options
};

// One transfer between a GPU and page-locked host memory.
struct random_transfer {
    std::string shape; // "blocks", "listed", or the engine whose cache it is
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

// Draws 1 to 65,536 blocks of one piece, at most `max_bytes` in all. A piece has 512 bytes to 8 MiB, a multiple of 16
// that is no power of two. The logarithms of sizes and counts are uniform.
random_transfer draw_blocks(std::mt19937_64 &random, uint64_t max_bytes);

// Transfers whose path was chosen wrongly by an earlier model: few short pieces, and many pieces that are scattered on both
// sides.
std::vector<random_transfer> listed_transfers();

// Draws one of the caches of engines (KV heads and sizes of common models), and a number of blocks.
random_transfer draw_engine(std::mt19937_64 &random, uint64_t max_bytes);

} // namespace bench
