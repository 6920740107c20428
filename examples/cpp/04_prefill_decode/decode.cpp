// SPDX-License-Identifier: Apache-2.0
// The decode process: pulls blocks from prefill, offloads them to disk, restores them, and checks every byte.
#include "move.hpp"
#include "offer.hpp"
#include "pattern.hpp"
#include "progress.hpp"
#include "roles.hpp"
#include "stage.hpp"

namespace {

// Reads memory that the CPU can access in place. Returns the row.
std::string read_in_place(const Cache &cache, const BlockIds &blocks) {
    Row row{"decode", "read them in place", blocks.size() * cache.block_bytes()};
    Progress progress("decode reads prefill's memory", row.bytes);
    const Stopwatch stopwatch;
    for (const std::uint32_t block : blocks) {
        check_filled(cache, block, block);
        progress.add(cache.block_bytes());
    }
    row.time = stopwatch.read();
    row.path = "CPU, no copy";
    row.verified = "every byte";
    return format_row(row);
}

Offer take_offer(const Options &options, kvmem::Agent &agent, Channel &prefill, const Deadline &deadline) {
    Offer offer = receive_offer(options, agent, prefill, deadline);
    print(offer.rows);
    if (offer.mapped) {
        const Cache mapped(std::move(offer.mapped), kvmem::Layout());
        if (mapped.info.memory_type != kvmem::MemoryType::vram) print(read_in_place(mapped, offer.blocks));
    }
    return offer;
}

// Checks that blocks `ids` equal prefill's blocks `origins`, byte for byte, and that no other block has changed.
// Returns the row of the copy to host memory that the check needs.
std::string check_cache(const Cache &cache, const BlockIds &ids, const BlockIds &origins,
                        const Deadline &deadline) {
    const BlockIds all = all_blocks(cache.info.num_blocks);
    const std::string copied = copy_to_host({"decode", "copy all out, to check"}, cache, all, deadline);
    Progress progress("decode verifies", cache.info.num_blocks * cache.block_bytes());
    std::vector<bool> expected(cache.info.num_blocks);
    for (std::size_t i = 0; i < ids.size(); ++i) {
        check_filled(cache, ids[i], origins[i]);
        expected[ids[i]] = true;
        progress.add(cache.block_bytes());
    }
    for (std::uint64_t block = 0; block < expected.size(); ++block) {
        if (expected[block]) continue;
        check_wiped(cache, block);
        progress.add(cache.block_bytes());
    }
    return copied;
}

void wipe(const Cache &cache, const BlockIds &ids, const Deadline &deadline) {
    Row row{"decode", "wipe them in memory", ids.size() * cache.block_bytes()};
    row.path = "CPU";
    const Stopwatch stopwatch;
    for (const std::uint32_t id : ids) wipe_block(cache, id);
    row.time = stopwatch.read();
    print(format_row(row) + copy_to_gpu({"decode", "copy them to the GPU"}, cache, ids, deadline));
}

// Returns the ids of the blocks in the own cache.
BlockIds pull(const Options &options, const Cache &cache, const Offer &offer, Channel &prefill,
              const Deadline &deadline) {
    const std::size_t count = offer.blocks.size();
    const BlockIds ids = draw_blocks(count, options.blocks, offer.blocks, options.seed + 1);
    Row row{"decode", "pull " + count_blocks(count)};
    // NIXL notifies prefill after the last block. Mapped memory has no notifications.
    const Move move = {offer.layout, cache.layout, offer.blocks, ids, cache.block_bytes(),
                       options.share ? std::string_view() : pulled_notification};
    move_blocks(move, row, deadline);
    report_pulled(options, prefill, deadline);
    // Checked after prefill has wiped its memory, so that correct bytes are copies.
    const std::string released = prefill.receive(Message::released, deadline);
    const std::string copied = check_cache(cache, ids, offer.blocks, deadline);
    row.verified = "every byte";
    print(format_row(row) + released + copied);
    return ids;
}

// Offloads blocks to disk and restores them to other ids, like a paged cache.
void offload_and_restore(const Options &options, const Cache &cache, const BlockIds &ids,
                         const BlockIds &origins, const Deadline &deadline) {
    const std::size_t count = ids.size();
    const auto disk = build_disk_layout(options, count);
    const BlockIds slots = draw_blocks(count, count, ids, options.seed + 2);
    print(copy_to_host({"decode", "copy " + count_blocks(count) + " to host"}, cache, ids, deadline));
    Row row{"decode", "offload " + count_blocks(count)};
    move_blocks({cache.host(), disk, ids, slots, cache.block_bytes()}, row, deadline);
    row.path += std::string(", ") + disk_mode(disk);
    print(format_row(row));

    wipe(cache, ids, deadline);
    print(check_cache(cache, {}, {}, deadline));

    const BlockIds restored = draw_blocks(count, options.blocks, ids, options.seed + 3);
    row = {"decode", "restore " + count_blocks(count)};
    move_blocks({disk, cache.host(), slots, restored, cache.block_bytes()}, row, deadline);
    std::string copied = copy_to_gpu({"decode", "copy them to the GPU"}, cache, restored, deadline);
    copied += check_cache(cache, restored, origins, deadline);
    row.path += std::string(", ") + disk_mode(disk);
    row.verified = "every byte";
    print(format_row(row) + copied);
}

}  // namespace

void run_decode(const Options &options, Channel &prefill, const Deadline &deadline) {
    std::string rows;
    // Mapped memory and files do not need NIXL.
    auto agent = options.share ? kvmem::Agent() : start_agent("decode", rows);
    print(rows);
    rows.clear();
    const auto config = geometry(options, KVMEM_ORDER_LAYER_SEPARATE, options.blocks);
    const Cache cache = build_cache(options, {"decode", config, agent, false}, rows);
    // New host memory is zero; new GPU memory may contain anything.
    print(rows + copy_to_gpu({"decode", "clear GPU memory"}, cache, all_blocks(options.blocks), deadline));

    Offer offer = take_offer(options, agent, prefill, deadline);
    const BlockIds ids = pull(options, cache, offer, prefill, deadline);
    offload_and_restore(options, cache, ids, offer.blocks, deadline);

    release_offer(offer, agent);
    prefill.send(Message::done, {}, deadline);
}
