// SPDX-License-Identifier: Apache-2.0
// The prefill process: fills its cache, offers it, and wipes it once decode has pulled its blocks.
#include "move.hpp"
#include "offer.hpp"
#include "pattern.hpp"
#include "progress.hpp"
#include "roles.hpp"
#include "stage.hpp"

#include <stdexcept>

namespace {

// How long prefill listens for a notification before it looks whether decode still lives.
constexpr std::chrono::milliseconds slice{100};

std::string fill(const Cache &cache, const Deadline &deadline) {
    Row row{"prefill", "fill " + count_blocks(cache.info.num_blocks)};
    row.bytes = cache.info.num_blocks * cache.block_bytes();
    row.path = "CPU";
    Progress progress("prefill fills its cache", row.bytes);
    const Stopwatch stopwatch;
    for (std::uint64_t block = 0; block < cache.info.num_blocks; ++block) {
        fill_block(cache, block);
        progress.add(cache.block_bytes());
    }
    row.time = stopwatch.read();
    return format_row(row) +
           copy_to_gpu({"prefill", "copy it to the GPU"}, cache, all_blocks(cache.info.num_blocks), deadline);
}

std::string wipe(const Cache &cache, const Deadline &deadline) {
    Row row{"prefill", "wipe the whole cache"};
    row.bytes = cache.info.num_blocks * cache.block_bytes();
    row.path = "CPU";
    const Stopwatch stopwatch;
    for (std::uint64_t block = 0; block < cache.info.num_blocks; ++block) wipe_block(cache, block);
    row.time = stopwatch.read();
    return format_row(row) +
           copy_to_gpu({"prefill", "copy it to the GPU"}, cache, all_blocks(cache.info.num_blocks), deadline);
}

// Waits in slices, because decode may end before it notifies; then its end of the channel closes.
void wait_until_notified(kvmem::Agent &agent, Channel &decode, const Deadline &deadline) {
    while (!deadline.passed()) {
        const auto notifications = agent.take_notifications(slice);
        for (std::size_t i = 0; i < notifications.size(); ++i) {
            if (notifications.at(i).text() == pulled_notification) return;
        }
        // Decode sends nothing before the reply, so a message at this point is a failure.
        if (decode.readable()) decode.receive(Message::failure, deadline);
    }
    throw std::runtime_error("decode's notification did not come");
}

// Returns when decode has its blocks.
void serve(const Options &options, const Cache &cache, kvmem::Agent &agent, Channel &decode,
           const Deadline &deadline) {
    if (options.share) {
        offer_by_share(cache, decode, deadline);
        decode.receive(Message::pulled, deadline);
    } else {
        offer_by_nixl(cache, agent, decode, deadline);
        wait_until_notified(agent, decode, deadline);
    }
}

}  // namespace

void run_prefill(const Options &options, Channel &decode, const Deadline &deadline) {
    std::string rows;
    auto agent = options.share ? kvmem::Agent() : start_agent("prefill", rows);
    const Part part = {"prefill", kvmem::LayoutKind::fully_contiguous, agent, options.share};
    const Cache cache = build_cache(options, part, rows);
    rows += fill(cache, deadline);

    const BlockIds blocks = draw_blocks(options.pull, options.blocks, {}, options.seed);
    decode.send(Message::rows, rows, deadline);
    decode.send(Message::blocks,
                {reinterpret_cast<const char *>(blocks.data()), blocks.size() * sizeof blocks[0]}, deadline);
    serve(options, cache, agent, decode, deadline);
    decode.send(Message::released, wipe(cache, deadline), deadline);
    decode.receive(Message::done, deadline);
}
