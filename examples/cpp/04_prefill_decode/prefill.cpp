// SPDX-License-Identifier: Apache-2.0
// The prefill process: fills its cache, offers it, and wipes it after decode has pulled its blocks.
#include "move.hpp"
#include "offer.hpp"
#include "pattern.hpp"
#include "progress.hpp"
#include "roles.hpp"
#include "stage.hpp"

namespace {

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

}  // namespace

void run_prefill(const Options &options, Channel &decode, const Deadline &deadline) {
    std::string rows;
    auto agent = options.share ? kvmem::Agent() : start_agent("prefill", rows);
    const auto config = geometry(options, KVMEM_ORDER_FULLY_CONTIGUOUS, options.blocks);
    const Cache cache = build_cache(options, {"prefill", config, agent, options.share}, rows);
    rows += fill(cache, deadline);

    const BlockIds blocks = draw_blocks(options.pull, options.blocks, {}, options.seed);
    send_offer(options, cache, agent, blocks, rows, decode, deadline);
    wait_until_pulled(options, agent, {&decode}, deadline);
    decode.send(Message::released, wipe(cache, deadline), deadline);
    decode.receive(Message::done, deadline);
}
