// SPDX-License-Identifier: Apache-2.0
// Moves blocks by kvmem transfers, and draws the block ids to move.
#pragma once

#include "cache.hpp"
#include "deadline.hpp"
#include "table.hpp"

#include <string_view>
#include <vector>

using BlockIds = std::vector<std::uint32_t>;

struct Move {
    const kvmem::Layout &source;
    const kvmem::Layout &destination;
    const BlockIds &source_ids;
    const BlockIds &destination_ids;
    std::uint64_t block_bytes;
    std::string_view notification = {};  // sent to the remote side with the last block
};

// Moves all blocks, and sets the row's bytes, time and path.
void move_blocks(const Move &move, Row &row, const Deadline &deadline);

BlockIds all_blocks(std::uint64_t count);

// Returns `count` different ids below `limit`, in random order. The id at each index differs from that of `avoid`.
BlockIds draw_blocks(std::size_t count, std::uint64_t limit, const BlockIds &avoid, std::uint64_t seed);
