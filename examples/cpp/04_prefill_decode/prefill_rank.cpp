// SPDX-License-Identifier: Apache-2.0
// One rank of prefill: fills the tokens of all prompts in its heads, offers them to decode, and wipes its cache after
// all ranks of decode have pulled them.
#include "move.hpp"
#include "offer.hpp"
#include "pattern.hpp"
#include "progress.hpp"
#include "ranks.hpp"
#include "roles.hpp"
#include "stage.hpp"
#include "tokens.hpp"

namespace {

std::string fill(const Cache &cache, const Options &options, const std::vector<Prompt> &prompts,
                 const Deadline &deadline) {
    const std::string process = process_name(options);
    Row row{process, "fill " + count_prompts(prompts)};
    row.bytes = cache.block_bytes() / cache.info.page_size * count_tokens(prompts);
    row.path = "CPU";
    const Stopwatch stopwatch;
    fill_tokens(cache, heads_of(options, options.role, options.rank), prompts);
    row.time = stopwatch.read();
    return format_row(row) +
           copy_to_gpu({process, "copy it to the GPU"}, cache, all_blocks(cache.info.num_blocks), deadline);
}

std::string wipe(const Cache &cache, const Options &options, const Deadline &deadline) {
    const std::string process = process_name(options);
    Row row{process, "wipe the whole cache", cache.info.num_blocks * cache.block_bytes()};
    row.path = "CPU";
    const Stopwatch stopwatch;
    for (std::uint64_t block = 0; block < cache.info.num_blocks; ++block) wipe_block(cache, block);
    row.time = stopwatch.read();
    return format_row(row) +
           copy_to_gpu({process, "copy it to the GPU"}, cache, all_blocks(cache.info.num_blocks), deadline);
}

}  // namespace

void run_prefill_rank(const Options &options, std::deque<Channel> &decode, const Deadline &deadline) {
    std::string rows;
    auto agent = options.share ? kvmem::Agent() : start_agent(process_name(options), rows);
    const auto config = geometry_of_rank(options, Role::prefill);
    const Cache cache = build_cache(options, {process_name(options), config, agent, options.share}, rows);

    const std::uint64_t seed = options.seed + options.rank;
    const std::vector<Prompt> prompts = place_prompts(draw_prompts(options), config, seed);
    rows += fill(cache, options, prompts, deadline);
    const BlockIds blocks = list_blocks(prompts);

    std::vector<Channel *> channels;
    for (const PeerRank &peer : find_peers(options, decode)) {
        with(peer, [&] { send_offer(options, cache, agent, blocks, rows, peer.channel, deadline); });
        channels.push_back(&peer.channel);
        rows.clear();  // only the first rank of decode prints the rows
    }
    wait_until_pulled(options, agent, channels, deadline);
    std::string wiped = wipe(cache, options, deadline);
    for (Channel *const peer : channels) {
        peer->send(Message::released, wiped, deadline);
        wiped.clear();
    }
    for (Channel *const peer : channels) peer->receive(Message::done, deadline);
}
