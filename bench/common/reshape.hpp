// SPDX-License-Identifier: Apache-2.0
// Caches of engines that differ in order, heads or block size, and what of their tokens is moved: rows 15 and 16.
#pragma once

#include "common/arena.hpp"
#include "common/kv.hpp"
#include "reference/copies.hpp"

#include <string>
#include <vector>

namespace bench {

constexpr uint64_t reshape_layers = 4;
constexpr uint64_t reshape_outers = 2;

// How one side stores the tokens. A row is one head of one token.
struct cache_shape {
    const char *order; // layers in one region, so that a side is one range of memory
    uint64_t tokens;   // of a block
    uint64_t heads;

    kvmem_layout_config config(uint64_t all_tokens, uint64_t row_bytes) const;
    uint64_t bytes(uint64_t all_tokens, uint64_t row_bytes) const;
    // Where a row lies from the first byte of a side with `blocks` blocks on.
    uint64_t offset(uint64_t blocks, uint64_t row_bytes, uint64_t block, uint64_t layer, uint64_t outer, uint64_t token,
                    uint64_t head) const;
};

struct cache_difference {
    const char *name;
    cache_shape from;
    cache_shape to;

    uint64_t heads() const { return from.heads < to.heads ? from.heads : to.heads; }
    // As many tokens as give about `bytes` bytes, in whole blocks of both sides.
    uint64_t tokens_for(uint64_t bytes, uint64_t row_bytes) const;
    uint64_t bytes(uint64_t tokens, uint64_t row_bytes) const
    {
        return tokens * reshape_layers * reshape_outers * heads() * row_bytes;
    }
};

const std::vector<cache_difference> &cache_differences();
// The same without a difference, for a comparison.
cache_difference plain_like(const cache_difference &shape);

// The block ids of a sequence of all tokens, scattered over a side; another `factor`, other ids.
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
    kv::transfer transfer(kv::wish wished) const;
    // Every span that is contiguous on both sides, in the order of tokens; addresses of the two arenas.
    cuda::copy_list spans() const;
};

} // namespace bench
