// SPDX-License-Identifier: Apache-2.0
// Blocks of one contiguous piece, and the pairs that move: scattered over two pools, in runs of a given length.
#pragma once

#include "common/kv.hpp"

#include <algorithm>
#include <random>

namespace bench {

// Fully contiguous: the layers of a block are consecutive, each with its outer slots.
inline kvmem_layout_config blocks_of(uint64_t block_bytes, uint64_t num_blocks, uint64_t num_layers,
                                     uint64_t outer_dim)
{
    kvmem_layout_config config{};
    config.struct_size = sizeof config;
    config.num_blocks = num_blocks;
    config.num_layers = num_layers;
    config.outer_dim = outer_dim;
    config.page_size = 16;
    config.dtype_width = 2;
    config.inner_dim = block_bytes / (num_layers * outer_dim * config.page_size * config.dtype_width);
    config.order = KVMEM_ORDER_FULLY_CONTIGUOUS;
    return config;
}

// Blocks of 4 layers with keys and values.
inline kvmem_layout_config whole_blocks(uint64_t block_bytes, uint64_t num_blocks)
{
    return blocks_of(block_bytes, num_blocks, 4, 2);
}

// Returns `count` of `pool` block ids, in runs of `run` adjacent ones. The runs are in random order.
inline std::vector<uint32_t> scattered_ids(uint32_t count, uint32_t pool, uint32_t run, std::mt19937 &random)
{
    std::vector<uint32_t> starts;
    for (uint32_t start = 0; start < pool / run; ++start)
        starts.push_back(start);
    std::shuffle(starts.begin(), starts.end(), random);
    std::vector<uint32_t> ids;
    for (uint32_t start : starts)
        for (uint32_t within = 0; within < run && ids.size() < count; ++within)
            ids.push_back(start * run + within);
    return ids;
}

// Returns pairs whose sources and destinations are scattered independently. Equal arguments give equal pairs.
inline kv::pairs scattered_pairs(uint32_t count, uint32_t pool, uint32_t run = 1)
{
    std::mt19937 random(20 + run);
    const std::vector<uint32_t> sources = scattered_ids(count, pool, run, random);
    const std::vector<uint32_t> destinations = scattered_ids(count, pool, run, random);
    kv::pairs pairs;
    for (uint32_t index = 0; index < count; ++index)
        pairs.push_back({sources[index], destinations[index]});
    return pairs;
}

} // namespace bench
