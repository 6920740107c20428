// SPDX-License-Identifier: Apache-2.0
// The pattern of a block: every 8-byte word contains its block, layer, outer slot and position, so that the origin of a
// wrong byte is known.
#pragma once

#include "cache.hpp"

#include <stdexcept>

// Wrong bytes. The text has their location and their value.
struct Mismatch : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Throws UsageError for a geometry whose indices do not fit into a word.
void require_nameable(const Options &options);

void fill_block(const Cache &cache, std::uint64_t block);
void wipe_block(const Cache &cache, std::uint64_t block);
// Fills a block with bytes of neither pattern, so that missing copies are detected.
void spoil_block(const Cache &cache, std::uint64_t block);

// Checks that `block` has, byte for byte, what fill_block wrote to block `origin` of another cache.
void check_filled(const Cache &cache, std::uint64_t block, std::uint64_t origin);
void check_wiped(const Cache &cache, std::uint64_t block);
