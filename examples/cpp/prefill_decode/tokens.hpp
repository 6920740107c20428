// SPDX-License-Identifier: Apache-2.0
// The bytes a token is filled with: every 8-byte word names its token, layer, outer slot, head and position,
// whatever the cache that it is in.
#pragma once

#include "cache.hpp"
#include "ranks.hpp"

#include <vector>

// Throws UsageError for a geometry whose places do not fit into a word.
void require_nameable_tokens(const Options &options);

// Fills the tokens of all prompts, in the heads that the cache has.
void fill_tokens(const Cache &cache, const Heads &heads, const std::vector<Prompt> &prompts);

// Every token of every prompt is as fill_tokens writes it, and all else is wiped. Throws Mismatch otherwise.
void check_tokens(const Cache &cache, const Heads &heads, const std::vector<Prompt> &prompts);
