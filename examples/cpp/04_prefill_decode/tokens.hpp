// SPDX-License-Identifier: Apache-2.0
// The pattern of a token: every 8-byte word contains its token, layer, outer slot, head and position, the same in every
// cache.
#pragma once

#include "cache.hpp"
#include "ranks.hpp"

#include <vector>

// Throws UsageError for a geometry whose indices do not fit into a word.
void require_nameable_tokens(const Options &options);

// Fills the tokens of all prompts, in the heads of the cache.
void fill_tokens(const Cache &cache, const Heads &heads, const std::vector<Prompt> &prompts);

// Throws Mismatch unless every token of every prompt has the bytes of fill_tokens, and all other bytes are wiped.
void check_tokens(const Cache &cache, const Heads &heads, const std::vector<Prompt> &prompts);
