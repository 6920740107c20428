// SPDX-License-Identifier: Apache-2.0
// The bytes a block is filled with: every 8-byte word names its block, layer, outer slot and position, so
// that a wrong byte names its origin.
#pragma once

#include "cache.hpp"

#include <stdexcept>

// Bytes that are not what they have to be: the text says where, and what they are instead.
struct Mismatch : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Throws UsageError for a geometry whose places do not fit into a word.
void require_nameable(const Options &options);

void fill_block(const Cache &cache, std::uint64_t block);
void wipe_block(const Cache &cache, std::uint64_t block);
// Neither filled nor wiped: whatever the block is to hold has to come.
void spoil_block(const Cache &cache, std::uint64_t block);

// `block` holds, byte for byte, what fill_block wrote into block `origin` of another cache.
void check_filled(const Cache &cache, std::uint64_t block, std::uint64_t origin);
void check_wiped(const Cache &cache, std::uint64_t block);
