// SPDX-License-Identifier: Apache-2.0
// Two engines in two processes. Decode reads KV blocks of prefill over NIXL, maps prefill's cache as well, offloads its
// blocks to a file, and restores them. Every step is verified by checksums that prefill computed.
#include "channel.hpp"

#include <kvmem.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <vector>

namespace {

using BlockIds = std::vector<std::uint32_t>;

// Prefill's blocks that decode needs, and where decode puts them.
const BlockIds prefill_blocks = {3, 4, 9}, decode_blocks = {11, 2, 7}, file_blocks = {0, 1, 2}, restored_blocks = {5, 6, 1};

kvmem::LayoutConfig model(const char *order, std::uint64_t num_blocks) {
    kvmem::LayoutConfig config;
    config.num_blocks = num_blocks;
    config.num_layers = 4;
    config.outer_dim = 2;  // keys and values
    config.page_size = 16;
    config.inner_dim = 8 * 128;
    config.num_heads = 8;
    config.dtype_width = 2;
    config.order = order;
    return config;
}

kvmem::Agent start_agent(const char *name) {
    auto agent = kvmem::Agent::create(name);
    agent.create_backend("UCX");
    return agent;
}

std::vector<kvmem::BlockPair> pairs_of(const BlockIds &sources, const BlockIds &destinations) {
    std::vector<kvmem::BlockPair> pairs;
    for (std::size_t i = 0; i < sources.size(); ++i) pairs.push_back({sources[i], destinations[i]});
    return pairs;
}

// Moves blocks, and compares them with their checksums at the destination.
void move(const char *what, const kvmem::Layout &from, const BlockIds &sources, const kvmem::Layout &to,
          const BlockIds &destinations, const std::vector<std::uint32_t> &checksums,
          std::optional<std::string> notification = {}) {
    const auto pairs = pairs_of(sources, destinations);
    kvmem::SubmitOptions blocks;
    blocks.pairs = pairs;
    blocks.checksums = checksums;
    blocks.notification = std::move(notification);
    const auto transfer = kvmem::Transfer::start(from, to, {}, blocks);
    if (!transfer.wait_for(std::chrono::seconds(30))) throw std::runtime_error("the transfer takes too long");
    std::printf("%s: %zu blocks, %s, verified\n", what, pairs.size(), kvmem::name(transfer.info().method));
}

void fill(const kvmem::Layout &cache, std::uint32_t block) {
    const auto info = cache.info();
    for (std::uint64_t layer = 0; layer < info.num_layers; ++layer) {
        for (std::uint64_t outer = 0; outer < info.outer_dim; ++outer) {
            const auto bytes = cache.host_bytes(block, layer, outer);
            const auto value = static_cast<std::byte>(block * 16 + layer * 2 + outer);
            std::fill(bytes.begin(), bytes.end(), value);
        }
    }
}

// ---- Prefill: owns the cache ----

void prefill(char *program) {
    auto agent = start_agent("prefill");
    const auto config = model(KVMEM_ORDER_FULLY_CONTIGUOUS, 16);

    kvmem::SystemOptions memory;
    memory.flags = kvmem::SystemFlag::shareable;
    memory.size = kvmem::layout_requirements(config).total_size;
    const auto region = kvmem::Region::create_system(memory);
    std::vector<kvmem::Registration> registrations;
    registrations.push_back(agent.register_region(region));
    const auto cache = kvmem::Layout::build(config, registrations);
    for (const std::uint32_t block : prefill_blocks) fill(cache, block);

    OtherProcess decode(program);
    Channel &channel = decode.channel();
    const auto checksums = cache.checksum(prefill_blocks);
    channel.send({checksums.data(), checksums.size() * sizeof checksums[0]});
    channel.send(agent.local_metadata());
    channel.send(cache.export_descriptor());
    agent.load_remote_metadata(channel.receive());

    // Decode reads without any work here, and sends a notification after its last block.
    const auto messages = agent.take_notifications(std::chrono::seconds(30));
    if (messages.empty()) throw std::runtime_error("decode has sent no notification");
    const auto message = messages.at(0);
    std::printf("prefill: %s is done: %s\n", std::string(message.agent).c_str(), std::string(message.text()).c_str());
    std::fflush(stdout);

    // The memory itself, for reading.
    kvmem::ShareOptions options;
    options.flags = kvmem::ShareFlag::read_only;
    kvmem::Share::create(cache, options).send(channel.socket(), std::chrono::seconds(30));
    if (!decode.succeeded()) throw std::runtime_error("decode failed");
}

// ---- Decode: reads, maps, offloads, restores ----

void read_over_nixl(Channel &channel, kvmem::Agent &agent, const kvmem::Layout &cache,
                    const std::vector<std::uint32_t> &checksums) {
    const std::string peer = agent.load_remote_metadata(channel.receive());
    const auto remote = kvmem::Layout::import_descriptor(agent, channel.receive());
    channel.send(agent.local_metadata());
    move("decode: read from prefill", remote, prefill_blocks, cache, decode_blocks, checksums, "3 blocks");
}

void read_in_place(Channel &channel, const std::vector<std::uint32_t> &checksums) {
    const auto share = kvmem::Share::receive(channel.socket(), std::chrono::seconds(30));
    kvmem::OpenOptions options;
    options.flags = kvmem::OpenFlag::mapped_only;
    const auto mapped = share.open_layout(options);
    if (mapped.checksum(prefill_blocks) != checksums) throw std::runtime_error("the mapped blocks have other bytes");
    std::printf("decode: read in place: %zu blocks, verified\n", prefill_blocks.size());
}

void offload_and_restore(const kvmem::Layout &cache, const std::vector<std::uint32_t> &checksums) {
    const auto file = kvmem::Layout::build(model(KVMEM_ORDER_FULLY_CONTIGUOUS, file_blocks.size()),
                                           kvmem::DiskOptions());
    move("decode: offload", cache, decode_blocks, file, file_blocks, checksums);
    move("decode: restore", file, file_blocks, cache, restored_blocks, checksums);
}

void decode(int socket) {
    Channel channel(socket);
    const std::string received = channel.receive();
    std::vector<std::uint32_t> checksums(received.size() / sizeof(std::uint32_t));
    std::memcpy(checksums.data(), received.data(), checksums.size() * sizeof checksums[0]);

    auto agent = start_agent("decode");
    const auto cache = kvmem::Layout::build(model(KVMEM_ORDER_LAYER_SEPARATE, 12), kvmem::SystemOptions(), &agent);
    read_over_nixl(channel, agent, cache, checksums);
    read_in_place(channel, checksums);
    offload_and_restore(cache, checksums);
    std::printf("decode: all blocks have the checksums of prefill\n");
}

}  // namespace

int main(int argc, char **argv) {
    alarm(60);
    try {
        if (argc > 1) {
            decode(std::atoi(argv[1]));
        } else {
            prefill(argv[0]);
        }
        return EXIT_SUCCESS;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s: %s\n", argc > 1 ? "decode" : "prefill", error.what());
        return EXIT_FAILURE;
    }
}
