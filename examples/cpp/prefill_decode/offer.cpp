// SPDX-License-Identifier: Apache-2.0
// Two blobs and the metadata of decode for NIXL; one share for memory.
#include "offer.hpp"

#include "pattern.hpp"
#include "progress.hpp"

namespace {

kvmem::Layout open(const kvmem::Share &share) {
    kvmem::OpenOptions options;
    options.flags = kvmem::OpenFlag::mapped_only;
    return share.open_layout(options);
}

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

}  // namespace

void offer_by_nixl(const Cache &cache, kvmem::Agent &agent, Channel &decode, const Deadline &deadline) {
    decode.send(Message::metadata, agent.local_metadata().text(), deadline);
    decode.send(Message::layout, cache.layout.export_descriptor().text(), deadline);
    // Decode's notification comes over NIXL, too.
    agent.load_remote_metadata(decode.receive(Message::metadata, deadline));
}

void take_by_nixl(Offer &offer, kvmem::Agent &agent, Channel &prefill, const Deadline &deadline,
                  std::string &rows) {
    const std::string metadata = prefill.receive(Message::metadata, deadline);
    const std::string descriptor = prefill.receive(Message::layout, deadline);
    const Stopwatch stopwatch;
    offer.agent = agent.load_remote_metadata(metadata);
    offer.layout = kvmem::Layout::import_descriptor(agent, descriptor);
    rows += format_row({"decode", "import prefill's layout", descriptor.size(), stopwatch.read()});

    prefill.send(Message::metadata, agent.local_metadata().text(), deadline);
}

void offer_by_share(const Cache &cache, Channel &decode, const Deadline &deadline) {
    kvmem::ShareOptions options;
    options.flags = kvmem::ShareFlag::read_only;
    decode.send_share(kvmem::Share::create(cache.layout, options), deadline);
    // What decode has opened stays open without the share.
    decode.receive(Message::opened, deadline);
}

void take_by_share(Offer &offer, Channel &prefill, const Deadline &deadline, std::string &rows) {
    const Stopwatch stopwatch;
    const kvmem::Share share = prefill.receive_share(deadline);
    offer.layout = open(share);
    rows += format_row({"decode", "map prefill's cache", share.info().memory_size, stopwatch.read()});
    prefill.send(Message::opened, {}, deadline);

    // Opened once more, it is the same memory.
    const Cache mapped(open(share), kvmem::Layout());
    if (mapped.info.memory_type != kvmem::MemoryType::vram) rows += read_in_place(mapped, offer.blocks);
}
