// SPDX-License-Identifier: Apache-2.0
// With --reshard: the heads of each rank, the prompts, and the locations of their tokens in each cache.
#pragma once

#include "cache.hpp"
#include "channel.hpp"
#include "move.hpp"
#include "options.hpp"

#include <cstdint>
#include <deque>
#include <stdexcept>
#include <string>
#include <vector>

// A range of the model's heads.
struct Heads {
    std::uint64_t first;
    std::uint64_t count;
};

Heads heads_of(const Options &options, Role role, std::uint64_t rank);

// A rank of the other side.
struct PeerRank {
    std::string name;
    Channel &channel;
    Heads heads;
    Heads common;  // with this process
};

// Returns the ranks of the other side that have heads in common with this process.
std::vector<PeerRank> find_peers(const Options &options, std::deque<Channel> &channels);

// Calls `work`, and adds the peer's name to its failure.
template <typename Work>
void with(const PeerRank &peer, Work work) {
    try {
        work();
    } catch (const std::exception &error) {
        throw std::runtime_error(peer.name + ": " + error.what());
    }
}

// A prompt, and its blocks in a cache, in the order of its tokens.
struct Prompt {
    std::uint64_t first;  // number of its first token, counted through all prompts
    std::uint64_t tokens;
    BlockIds blocks = {};
};

// The same prompts in every process, without blocks. Each ends inside a block, on both sides.
std::vector<Prompt> draw_prompts(const Options &options);
std::string count_prompts(const std::vector<Prompt> &prompts);
std::uint64_t count_tokens(const std::vector<Prompt> &prompts);

// The layout of a rank's cache: HND in prefill and NHD in decode, both as in vLLM.
kvmem::LayoutConfig geometry_of_rank(const Options &options, Role role);
std::string describe_side(const Options &options, Role role);

// Returns the prompts with blocks of a cache: from a list of all prompts' blocks, or random ones.
std::vector<Prompt> place_prompts(std::vector<Prompt> prompts, const BlockIds &blocks,
                                  std::uint64_t page_size);
std::vector<Prompt> place_prompts(std::vector<Prompt> prompts, const kvmem::LayoutConfig &cache,
                                  std::uint64_t seed);
// Returns the list of all prompts' blocks.
BlockIds list_blocks(const std::vector<Prompt> &prompts);
