// SPDX-License-Identifier: Apache-2.0
// Divides heads among ranks, and draws prompts and their blocks.
#include "ranks.hpp"

#include <algorithm>
#include <random>

namespace {

std::uint64_t ranks_of(const Options &options, Role role) {
    return role == Role::prefill ? options.prefill_ranks : options.decode_ranks;
}

Heads find_common(const Heads &one, const Heads &other) {
    const std::uint64_t first = std::max(one.first, other.first);
    const std::uint64_t end = std::min(one.first + one.count, other.first + other.count);
    return {first, end > first ? end - first : 0};
}

std::uint64_t blocks_for(const Prompt &prompt, std::uint64_t page_size) {
    return (prompt.tokens + page_size - 1) / page_size;
}

std::uint64_t blocks_for(const std::vector<Prompt> &prompts, std::uint64_t page_size) {
    std::uint64_t blocks = 0;
    for (const Prompt &prompt : prompts) blocks += blocks_for(prompt, page_size);
    return blocks;
}

bool fills_its_blocks(std::uint64_t tokens, std::uint64_t page_size) {
    return page_size > 1 && tokens % page_size == 0;
}

}  // namespace

Heads heads_of(const Options &options, Role role, std::uint64_t rank) {
    const std::uint64_t count = options.heads / ranks_of(options, role);
    return {rank * count, count};
}

std::vector<PeerRank> find_peers(const Options &options, std::deque<Channel> &channels) {
    const Heads own = heads_of(options, options.role, options.rank);
    Options peer = options;
    peer.role = options.role == Role::prefill ? Role::decode : Role::prefill;
    std::vector<PeerRank> peers;
    for (peer.rank = 0; peer.rank < channels.size(); ++peer.rank) {
        const Heads heads = heads_of(options, peer.role, peer.rank);
        const Heads common = find_common(own, heads);
        if (common.count > 0) peers.push_back({process_name(peer), channels[peer.rank], heads, common});
    }
    return peers;
}

std::vector<Prompt> draw_prompts(const Options &options) {
    // Half of prefill's cache is enough for all of them.
    const std::uint64_t longest = options.blocks / 2 / options.prompts * options.page_size;
    std::mt19937_64 random(options.seed);
    std::vector<Prompt> prompts;
    for (std::uint64_t first = 0; prompts.size() < options.prompts; first = count_tokens(prompts)) {
        std::uint64_t tokens = longest - random() % (longest - longest / 2);
        while (tokens > 1 && (fills_its_blocks(tokens, options.page_size) ||
                              fills_its_blocks(tokens, options.decode_page_size))) {
            --tokens;
        }
        prompts.push_back({first, tokens});
    }
    return prompts;
}

std::string count_prompts(const std::vector<Prompt> &prompts) {
    return std::to_string(prompts.size()) + (prompts.size() == 1 ? " prompt" : " prompts");
}

std::uint64_t count_tokens(const std::vector<Prompt> &prompts) {
    return prompts.back().first + prompts.back().tokens;
}

kvmem::LayoutConfig geometry_of_rank(const Options &options, Role role) {
    const std::uint64_t heads = heads_of(options, role, 0).count;
    if (role == Role::prefill) {
        return geometry(options, "L/OBHNC", heads, options.page_size, options.blocks);
    }
    // As in prefill, half of the blocks are not used.
    const std::uint64_t blocks = 2 * blocks_for(draw_prompts(options), options.decode_page_size);
    return geometry(options, "L/OBNHC", heads, options.decode_page_size, blocks);
}

std::string describe_side(const Options &options, Role role) {
    const auto config = geometry_of_rank(options, role);
    const std::uint64_t ranks = ranks_of(options, role);
    return std::string(role == Role::prefill ? "prefill: " : "decode: ") + std::to_string(ranks) +
           (ranks == 1 ? " rank of " : " ranks of ") + std::to_string(config.num_heads) + " heads, " +
           (role == Role::prefill ? "HND, " : "NHD, ") + std::to_string(config.num_blocks) + " blocks of " +
           std::to_string(config.page_size) + " tokens";
}

std::vector<Prompt> place_prompts(std::vector<Prompt> prompts, const BlockIds &blocks,
                                  std::uint64_t page_size) {
    if (blocks.size() != blocks_for(prompts, page_size)) {
        throw std::runtime_error("the prompts have other blocks than their tokens need");
    }
    auto next = blocks.begin();
    for (Prompt &prompt : prompts) {
        const auto end = next + static_cast<std::ptrdiff_t>(blocks_for(prompt, page_size));
        prompt.blocks.assign(next, end);
        next = end;
    }
    return prompts;
}

std::vector<Prompt> place_prompts(std::vector<Prompt> prompts, const kvmem::LayoutConfig &cache,
                                  std::uint64_t seed) {
    const BlockIds blocks = draw_blocks(blocks_for(prompts, cache.page_size), cache.num_blocks, {}, seed);
    return place_prompts(std::move(prompts), blocks, cache.page_size);
}

BlockIds list_blocks(const std::vector<Prompt> &prompts) {
    BlockIds blocks;
    for (const Prompt &prompt : prompts) {
        blocks.insert(blocks.end(), prompt.blocks.begin(), prompt.blocks.end());
    }
    return blocks;
}
