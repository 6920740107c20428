// SPDX-License-Identifier: Apache-2.0
// One rank of decode: pulls the tokens of all prompts from the ranks of prefill that have its heads, and
// checks them. Its cache has another order of axes and other blocks.
#include "offer.hpp"
#include "progress.hpp"
#include "ranks.hpp"
#include "roles.hpp"
#include "stage.hpp"
#include "tokens.hpp"

#include <stdexcept>

namespace {

// The offer of a rank of prefill.
struct Source {
    PeerRank rank;
    Offer offer;
    std::vector<Prompt> prompts;  // with its blocks
};

std::vector<Source> receive_sources(const Options &options, kvmem::Agent &agent, std::deque<Channel> &prefill,
                                    const Deadline &deadline) {
    std::vector<Source> sources;
    for (const PeerRank &rank : find_peers(options, prefill)) {
        with(rank, [&] {
            Offer offer = receive_offer(options, agent, rank.channel, deadline);
            print(offer.rows);
            auto prompts = place_prompts(draw_prompts(options), offer.blocks, options.page_size);
            sources.push_back({rank, std::move(offer), std::move(prompts)});
        });
    }
    return sources;
}

// Starts to move one prompt: the heads that both ranks have, from prefill's blocks to decode's.
kvmem::Transfer start_pull(const Source &source, const Cache &cache, const Heads &own, const Prompt &from,
                           const Prompt &to, std::string_view notification) {
    const Heads &common = source.rank.common;
    kvmem::TransferOptions options;
    options.source_head = common.first - source.rank.heads.first;
    options.destination_head = common.first - own.first;
    options.num_heads = common.count;
    kvmem::SubmitOptions blocks;
    blocks.source_table = kvmem::BlockTable{from.blocks};
    blocks.destination_table = kvmem::BlockTable{to.blocks};
    blocks.num_tokens = to.tokens;
    if (!notification.empty()) blocks.notification = std::string(notification);
    return kvmem::Transfer::start(source.offer.layout, cache.layout, options, blocks);
}

// Pulls prompt by prompt, from all ranks at the same time.
void pull(const Options &options, const Cache &cache, const std::vector<Source> &sources,
          const std::vector<Prompt> &prompts, Row &row, const Deadline &deadline) {
    const Heads own = heads_of(options, Role::decode, options.rank);
    const Stopwatch stopwatch;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
        // Over NIXL the transfer of the last prompt notifies prefill.
        const bool notifies = !options.share && i + 1 == prompts.size();
        const std::string_view notification = notifies ? pulled_notification : std::string_view();
        std::vector<kvmem::Transfer> transfers;
        for (const Source &source : sources) {
            with(source.rank, [&] {
                const Prompt &from = source.prompts[i];
                transfers.push_back(start_pull(source, cache, own, from, prompts[i], notification));
            });
        }
        for (std::size_t j = 0; j < sources.size(); ++j) {
            with(sources[j].rank, [&] {
                if (!transfers[j].wait_for(deadline.left())) {
                    throw std::runtime_error("the transfer has not ended in time");
                }
                const auto info = transfers[j].info();
                row.bytes += info.bytes;
                row.path = kvmem::name(info.method);
            });
        }
    }
    row.time = stopwatch.read();
}

// Returns the row of the copy to host memory that the check needs.
std::string check(const Options &options, const Cache &cache, const std::vector<Prompt> &prompts,
                  const Deadline &deadline) {
    const Progress progress("decode verifies", cache.info.num_blocks * cache.block_bytes());
    std::string copied = copy_to_host({process_name(options), "copy all out, to check"}, cache,
                                      all_blocks(cache.info.num_blocks), deadline);
    check_tokens(cache, heads_of(options, Role::decode, options.rank), prompts);
    return copied;
}

}  // namespace

void run_decode_rank(const Options &options, std::deque<Channel> &prefill, const Deadline &deadline) {
    const std::string process = process_name(options);
    std::string rows;
    auto agent = options.share ? kvmem::Agent() : start_agent(process, rows);
    const auto config = geometry_of_rank(options, Role::decode);
    const Cache cache = build_cache(options, {process, config, agent, false}, rows);
    // New host memory is zero; new GPU memory may contain anything.
    print(rows + copy_to_gpu({process, "clear GPU memory"}, cache, all_blocks(config.num_blocks), deadline));

    std::vector<Source> sources = receive_sources(options, agent, prefill, deadline);
    const std::uint64_t seed = options.seed + options.prefill_ranks + options.rank;
    const std::vector<Prompt> prompts = place_prompts(draw_prompts(options), config, seed);
    Row row{process, "pull " + count_prompts(prompts)};
    pull(options, cache, sources, prompts, row, deadline);

    // Checked after prefill has wiped its memory, so that correct bytes are copies.
    std::string released;
    for (const Source &source : sources) {
        with(source.rank, [&] {
            report_pulled(options, source.rank.channel, deadline);
            released += source.rank.channel.receive(Message::released, deadline);
        });
    }
    const std::string copied = check(options, cache, prompts, deadline);
    row.verified = "every token";
    print(format_row(row) + released + copied);

    for (Source &source : sources) {
        release_offer(source.offer, agent);
        source.rank.channel.send(Message::done, {}, deadline);
    }
}
