// SPDX-License-Identifier: Apache-2.0
// The prefill process: fills its cache, offers it, and wipes it once decode has pulled its blocks.
#include "move.hpp"
#include "pattern.hpp"
#include "progress.hpp"
#include "roles.hpp"
#include "stage.hpp"

#include <stdexcept>

namespace {

// How long prefill listens for a notification before it looks whether decode still lives.
constexpr std::uint64_t slice_ns = 100'000'000;

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

// All that decode needs to read blocks here: who we are, where the blocks lie, and which ones are meant.
void send_offer(const Cache &cache, kvmem_agent *agent, const BlockIds &blocks, const std::string &rows,
                Channel &decode, const Deadline &deadline) {
    const auto metadata = kv::make<kv::Blob>(kvmem_agent_get_local_metadata, agent);
    const auto descriptor = kv::make<kv::Blob>(kvmem_layout_export, cache.layout.get());
    decode.send(Message::rows, rows, deadline);
    decode.send(Message::metadata, kv::bytes(metadata), deadline);
    decode.send(Message::layout, kv::bytes(descriptor), deadline);
    decode.send(Message::blocks,
                {reinterpret_cast<const char *>(blocks.data()), blocks.size() * sizeof blocks[0]}, deadline);
}

// What has come within a slice; nothing, if nothing has.
kv::Notifications take_notifications(kvmem_agent *agent) {
    try {
        return kv::make<kv::Notifications>(kvmem_agent_take_notifications, agent, slice_ns);
    } catch (const kv::Error &error) {
        if (error.status() == KVMEM_STATUS_TIMED_OUT) return nullptr;
        throw;
    }
}

// Waits in slices, since decode may die instead of notifying; its end of the channel tells.
void wait_until_pulled(kvmem_agent *agent, Channel &decode, const Deadline &deadline) {
    while (!deadline.passed()) {
        const auto notifications = take_notifications(agent);
        for (std::size_t i = 0; i < kvmem_notifications_count(notifications.get()); ++i) {
            const auto one = kv::get<kvmem_notification>(kvmem_notifications_get, notifications.get(), i);
            const std::string_view text(static_cast<const char *>(one.data), one.size);
            if (text == pulled_notification) return;
        }
        // Decode has nothing to say before we answer: whatever comes now is bad news.
        if (decode.readable()) decode.receive(Message::failure, deadline);
    }
    throw std::runtime_error("decode's notification did not come");
}

}  // namespace

void run_prefill(const Options &options, Channel &decode, const Deadline &deadline) {
    Row started;
    std::string built;
    const auto agent = start_agent("prefill", started);
    const Cache cache = build_cache(options, KVMEM_LAYOUT_FULLY_CONTIGUOUS, agent.get(), built);
    const std::string rows = format_row(started) + built + fill(cache, deadline);

    const BlockIds blocks = draw_blocks(options.pull, options.blocks, {}, options.seed);
    send_offer(cache, agent.get(), blocks, rows, decode, deadline);
    const std::string metadata = decode.receive(Message::metadata, deadline);
    kv::make<kv::Blob>(kvmem_agent_load_remote_metadata, agent.get(), metadata.data(), metadata.size());

    wait_until_pulled(agent.get(), decode, deadline);
    decode.send(Message::released, wipe(cache, deadline), deadline);
    decode.receive(Message::done, deadline);
}
