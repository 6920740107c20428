// SPDX-License-Identifier: Apache-2.0
// With NIXL, prefill sends two blobs, and decode sends its metadata back. Otherwise prefill sends one share.
#include "offer.hpp"

#include "table.hpp"

#include <chrono>
#include <cstring>
#include <stdexcept>

namespace {

// The time that prefill waits for a notification before it checks whether decode still runs.
constexpr std::chrono::milliseconds slice{100};

kvmem::Layout open(const kvmem::Share &share) {
    kvmem::OpenOptions options;
    options.flags = kvmem::OpenFlag::mapped_only;
    return share.open_layout(options);
}

// The agent's metadata and the descriptor of the layout.
void offer_by_nixl(const Cache &cache, kvmem::Agent &agent, Channel &decode, const Deadline &deadline) {
    decode.send(Message::metadata, agent.local_metadata().text(), deadline);
    decode.send(Message::layout, cache.layout.export_descriptor().text(), deadline);
    // Decode's notification is sent over NIXL too.
    agent.load_remote_metadata(decode.receive(Message::metadata, deadline));
}

void take_by_nixl(Offer &offer, const Options &options, kvmem::Agent &agent, Channel &prefill,
                  const Deadline &deadline) {
    const std::string metadata = prefill.receive(Message::metadata, deadline);
    const std::string descriptor = prefill.receive(Message::layout, deadline);
    const Stopwatch stopwatch;
    offer.agent = agent.load_remote_metadata(metadata);
    offer.layout = kvmem::Layout::import_descriptor(agent, descriptor);
    offer.rows += format_row({process_name(options), "import prefill's layout", descriptor.size(),
                              stopwatch.read()});
    prefill.send(Message::metadata, agent.local_metadata().text(), deadline);
}

// A share of the memory, for reading.
void offer_by_share(const Cache &cache, Channel &decode, const Deadline &deadline) {
    kvmem::ShareOptions options;
    options.flags = kvmem::ShareFlag::read_only;
    decode.send_share(kvmem::Share::create(cache.layout, options), deadline);
    // The layout that decode has opened does not need the share.
    decode.receive(Message::opened, deadline);
}

void take_by_share(Offer &offer, const Options &options, Channel &prefill, const Deadline &deadline) {
    const Stopwatch stopwatch;
    const kvmem::Share share = prefill.receive_share(deadline);
    offer.layout = open(share);
    offer.rows += format_row({process_name(options), "map prefill's cache", share.info().memory_size,
                              stopwatch.read()});
    offer.mapped = open(share);
    prefill.send(Message::opened, {}, deadline);
}

}  // namespace

void send_offer(const Options &options, const Cache &cache, kvmem::Agent &agent, const BlockIds &blocks,
                const std::string &rows, Channel &decode, const Deadline &deadline) {
    decode.send(Message::rows, rows, deadline);
    decode.send(Message::blocks,
                {reinterpret_cast<const char *>(blocks.data()), blocks.size() * sizeof blocks[0]}, deadline);
    if (options.share) {
        offer_by_share(cache, decode, deadline);
    } else {
        offer_by_nixl(cache, agent, decode, deadline);
    }
}

void wait_until_pulled(const Options &options, kvmem::Agent &agent, const std::vector<Channel *> &decode,
                       const Deadline &deadline) {
    if (options.share) {
        for (Channel *peer : decode) peer->receive(Message::pulled, deadline);
        return;
    }
    std::size_t expected = decode.size();
    // In slices: a peer that ends without a notification is detected by its end of the channel.
    while (expected > 0) {
        if (deadline.passed()) throw std::runtime_error("decode's notification did not arrive in time");
        const auto notifications = agent.take_notifications(slice);
        for (std::size_t i = 0; i < notifications.size(); ++i) {
            if (notifications.at(i).text() == pulled_notification) --expected;
        }
        // Decode sends nothing before the reply, so a message at this point is a failure.
        for (Channel *peer : decode) {
            if (expected > 0 && peer->readable()) peer->receive(Message::failure, deadline);
        }
    }
}

Offer receive_offer(const Options &options, kvmem::Agent &agent, Channel &prefill, const Deadline &deadline) {
    Offer offer;
    offer.rows = prefill.receive(Message::rows, deadline);
    const std::string ids = prefill.receive(Message::blocks, deadline);
    offer.blocks.resize(ids.size() / sizeof offer.blocks[0]);
    std::memcpy(offer.blocks.data(), ids.data(), offer.blocks.size() * sizeof offer.blocks[0]);
    if (options.share) {
        take_by_share(offer, options, prefill, deadline);
    } else {
        take_by_nixl(offer, options, agent, prefill, deadline);
    }
    return offer;
}

void report_pulled(const Options &options, Channel &prefill, const Deadline &deadline) {
    if (options.share) prefill.send(Message::pulled, {}, deadline);
}

void release_offer(Offer &offer, kvmem::Agent &agent) {
    offer.layout.reset();
    if (!offer.agent.empty()) agent.invalidate_remote_metadata(offer.agent);
}
