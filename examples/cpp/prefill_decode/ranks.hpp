// SPDX-License-Identifier: Apache-2.0
// With --reshard: the heads of each rank, the prompts, and where their tokens are in each cache.
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

// Those that have heads in common with this process.
std::vector<PeerRank> find_peers(const Options &options, std::deque<Channel> &channels);

// A failure of `work` names the peer that it was with.
template <typename Work>
void with(const PeerRank &peer, Work work) {
    try {
        work();
    } catch (const std::exception &error) {
        throw std::runtime_error(peer.name + ": " + error.what());
    }
}

// A prompt, and the blocks that a cache has for it, in the order of its tokens.
struct Prompt {
    std::uint64_t first;  // number of its first token, counted through all prompts
    std::uint64_t tokens;
    BlockIds blocks = {};
};

// The same prompts in every process, without blocks. Each ends inside a block, on both sides.
std::vector<Prompt> draw_prompts(const Options &options);
std::string count_prompts(const std::vector<Prompt> &prompts);
std::uint64_t count_tokens(const std::vector<Prompt> &prompts);

// The layout of a rank's cache: prefill's HND, decode's NHD, both as vLLM has them.
kvmem::LayoutConfig geometry_of_rank(const Options &options, Role role);
std::string describe_side(const Options &options, Role role);

// The prompts with blocks of a cache: those of a list of all prompts' blocks, or random ones.
std::vector<Prompt> place_prompts(std::vector<Prompt> prompts, const BlockIds &blocks,
                                  std::uint64_t page_size);
std::vector<Prompt> place_prompts(std::vector<Prompt> prompts, const kvmem::LayoutConfig &cache,
                                  std::uint64_t seed);
// The list.
BlockIds list_blocks(const std::vector<Prompt> &prompts);
