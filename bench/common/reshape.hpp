// SPDX-License-Identifier: Apache-2.0
// Caches of engines that differ in order, heads or block size, and the tokens that move between them: rows 15 and 16.
#pragma once

#include "common/arena.hpp"
#include "common/kv.hpp"
#include "reference/copies.hpp"

#include <string>
#include <vector>

namespace bench {

constexpr uint64_t reshape_layers = 4;
constexpr uint64_t reshape_outers = 2;

// The layout of one side. A row is one head of one token.
struct cache_shape {
    const char *order; // layers in one region, so that a side is one range of memory
    uint64_t tokens;   // of a block
    uint64_t heads;

    kvmem_layout_config config(uint64_t all_tokens, uint64_t row_bytes) const;
    uint64_t bytes(uint64_t all_tokens, uint64_t row_bytes) const;
    // Returns the offset of a row from the first byte of a side with `blocks` blocks.
    uint64_t offset(uint64_t blocks, uint64_t row_bytes, uint64_t block, uint64_t layer, uint64_t outer, uint64_t token,
                    uint64_t head) const;
};

struct cache_difference {
    const char *name;
    cache_shape from;
    cache_shape to;

    uint64_t heads() const { return from.heads < to.heads ? from.heads : to.heads; }
    // Returns the number of tokens, in whole blocks of both sides, that have about `bytes` bytes.
    uint64_t tokens_for(uint64_t bytes, uint64_t row_bytes) const;
    uint64_t bytes(uint64_t tokens, uint64_t row_bytes) const
    {
        return tokens * reshape_layers * reshape_outers * heads() * row_bytes;
    }
};

const std::vector<cache_difference> &cache_differences();
// Returns two equal sides with as many heads as the difference moves.
cache_difference plain_like(const cache_difference &shape);

// Returns the block ids of a sequence of all tokens, scattered over a side. Another `factor` gives other ids.
std::vector<uint32_t> scattered_table(uint64_t blocks, uint32_t factor);

// Both sides at the start of two arenas, and the tables of one sequence of all tokens.
struct cache_pair {
    cache_difference shape;
    uint64_t row_bytes;
    uint64_t tokens;
    const arena &source;
    const arena &destination;
    std::vector<uint32_t> source_table;
    std::vector<uint32_t> destination_table;
    kv::layout from;
    kv::layout to;

    cache_pair(const cache_difference &shape, uint64_t row_bytes, uint64_t tokens, const arena &source,
               const arena &destination);
    uint64_t bytes() const { return shape.bytes(tokens, row_bytes); }
    kv::transfer transfer(kv::preferences preferred) const;
    // Every span that is contiguous on both sides, in the order of tokens, with addresses in the two arenas.
    cuda::copy_list spans() const;
};

} // namespace bench
