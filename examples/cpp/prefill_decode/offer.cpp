// SPDX-License-Identifier: Apache-2.0
// Two blobs and the way back for NIXL; one share for memory.
#include "offer.hpp"

#include "pattern.hpp"
#include "progress.hpp"

namespace {

kv::Layout open(const kv::Share &share) {
    auto options = kv::defaults(kvmem_open_options_init);
    options.flags = KVMEM_OPEN_MAPPED_ONLY;
    return kv::make<kv::Layout>(kvmem_share_open_layout, share.get(), &options);
}

std::string read_in_place(const Cache &cache, const BlockIds &blocks) {
    Row row{"decode", "read them where they lie", blocks.size() * cache.block_bytes()};
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

void offer_by_nixl(const Cache &cache, kvmem_agent *agent, Channel &decode, const Deadline &deadline) {
    const auto metadata = kv::make<kv::Blob>(kvmem_agent_get_local_metadata, agent);
    const auto descriptor = kv::make<kv::Blob>(kvmem_layout_export, cache.layout.get());
    decode.send(Message::metadata, kv::bytes(metadata), deadline);
    decode.send(Message::layout, kv::bytes(descriptor), deadline);
    // Decode's notification comes over NIXL, too.
    const std::string theirs = decode.receive(Message::metadata, deadline);
    kv::make<kv::Blob>(kvmem_agent_load_remote_metadata, agent, theirs.data(), theirs.size());
}

void take_by_nixl(Offer &offer, kvmem_agent *agent, Channel &prefill, const Deadline &deadline,
                  std::string &rows) {
    const std::string metadata = prefill.receive(Message::metadata, deadline);
    const std::string descriptor = prefill.receive(Message::layout, deadline);
    const Stopwatch stopwatch;
    const auto name =
        kv::make<kv::Blob>(kvmem_agent_load_remote_metadata, agent, metadata.data(), metadata.size());
    offer.agent = kv::bytes(name);
    offer.layout = kv::make<kv::Layout>(kvmem_layout_import, agent, descriptor.data(), descriptor.size());
    rows += format_row({"decode", "import prefill's layout", descriptor.size(), stopwatch.read()});

    const auto own = kv::make<kv::Blob>(kvmem_agent_get_local_metadata, agent);
    prefill.send(Message::metadata, kv::bytes(own), deadline);
}

void offer_by_share(const Cache &cache, Channel &decode, const Deadline &deadline) {
    auto options = kv::defaults(kvmem_share_options_init);
    options.flags = KVMEM_SHARE_READ_ONLY;
    const auto share = kv::make<kv::Share>(kvmem_share_create_layout, cache.layout.get(), &options);
    decode.send_share(share, deadline);
    // What decode has opened stays open without the share.
    decode.receive(Message::opened, deadline);
}

void take_by_share(Offer &offer, Channel &prefill, const Deadline &deadline, std::string &rows) {
    const Stopwatch stopwatch;
    const kv::Share share = prefill.receive_share(deadline);
    offer.layout = open(share);
    const auto told = kv::get<kvmem_share_info>(kvmem_share_get_info, share.get());
    rows += format_row({"decode", "map prefill's cache", told.memory_size, stopwatch.read()});
    prefill.send(Message::opened, {}, deadline);

    // Opened once more, it is the same memory.
    const Cache mapped(open(share), nullptr);
    if (mapped.info.memory_type != KVMEM_MEMORY_VRAM) rows += read_in_place(mapped, offer.blocks);
}
