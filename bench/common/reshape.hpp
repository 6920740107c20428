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

// One head of one token: its bytes, and those of each element.
struct row_shape {
    uint64_t bytes;
    uint64_t element_bytes = 2;

    uint64_t elements() const { return bytes / element_bytes; }
};

// An element of a cache.
struct element_index {
    uint64_t layer = 0, outer = 0, token = 0, head = 0, element = 0;
};

// The layout of one side.
struct cache_shape {
    const char *order; // layers in one region, so that a side is one range of memory
    uint64_t tokens;   // of a block
    uint64_t heads;

    kvmem_layout_config config(uint64_t all_tokens, row_shape row) const;
    uint64_t bytes(uint64_t all_tokens, row_shape row) const;
    // Returns whether the elements of a row are contiguous.
    bool has_rows() const { return std::string(order).back() == 'C'; }
    // Returns the offset of an element from the first byte of a side with these blocks, in the order of their tokens.
    uint64_t offset(const std::vector<uint32_t> &table, row_shape row, element_index index) const;
};

struct cache_difference {
    const char *name;
    cache_shape from;
    cache_shape to;

    uint64_t heads() const { return from.heads < to.heads ? from.heads : to.heads; }
    // Returns the number of tokens, in whole blocks of both sides, that have about `bytes` bytes.
    uint64_t tokens_for(uint64_t bytes, row_shape row) const;
    uint64_t bytes(uint64_t tokens, row_shape row) const
    {
        return tokens * reshape_layers * reshape_outers * heads() * row.bytes;
    }
};

// Differences of which rows are moved whole.
const std::vector<cache_difference> &cache_differences();
// Differences of which elements are moved one by one: one side has its tokens innermost.
const std::vector<cache_difference> &transposed_differences();
// Returns two equal sides with as many heads as the difference moves.
cache_difference plain_like(const cache_difference &shape);

// Returns the block ids of a sequence of all tokens, scattered over a side. Another `factor` gives other ids.
std::vector<uint32_t> scattered_table(uint64_t blocks, uint32_t factor);

// Both sides at the start of two arenas, and the tables of one sequence of all tokens.
struct cache_pair {
    cache_difference shape;
    row_shape row;
    uint64_t tokens;
    const arena &source;
    const arena &destination;
    std::vector<uint32_t> source_table;
    std::vector<uint32_t> destination_table;
    kv::layout from;
    kv::layout to;

    cache_pair(const cache_difference &shape, row_shape row, uint64_t tokens, const arena &source, const arena &destination);
    uint64_t bytes() const { return shape.bytes(tokens, row); }
    kv::transfer transfer(kv::preferences preferred) const;
    // Returns the offset of an element in the arena of each side.
    uint64_t source_offset(element_index index) const { return shape.from.offset(source_table, row, index); }
    uint64_t destination_offset(element_index index) const { return shape.to.offset(destination_table, row, index); }
    // Every row, in the order of tokens, with addresses in the two arenas.
    cuda::copy_list spans() const;
};

} // namespace bench
