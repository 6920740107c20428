// SPDX-License-Identifier: Apache-2.0
// A reader leases blocks of another process, which may be on another machine, and reads them over NIXL. Their owner sees who uses a block,
// and reuses it after the lease. A reader that comes too late gets an error, never the bytes of another use.
#include "../03_two_processes/channel.hpp"

#include <kvmem.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;

constexpr auto patience = 30s;
const std::vector<std::uint32_t> blocks = {3, 7};

kvmem::Agent start_agent(const char *name) {
    auto agent = kvmem::Agent::create(name);
    agent.create_backend("UCX");
    return agent;
}

kvmem::Layout build_cache(const kvmem::Agent &agent) {
    kvmem::LayoutConfig config;
    config.num_blocks = 16;
    config.num_layers = 4;
    config.outer_dim = 2;
    config.page_size = 16;
    config.inner_dim = 8 * 128;
    config.dtype_width = 2;
    config.order = KVMEM_ORDER_FULLY_CONTIGUOUS;
    return kvmem::Layout::build(config, kvmem::SystemOptions(), &agent);
}

// ---- The owner ----

// Begins another use of blocks. Their old epochs are over before the first byte is written.
std::vector<std::uint64_t> fill(const kvmem::Layout &cache, const std::vector<std::uint32_t> &ids, int value) {
    auto epochs = cache.raise_epochs(ids);
    for (const auto block : ids) {
        const auto bytes = cache.host_bytes(block, 0, 0);
        std::fill(bytes.begin(), bytes.end(), std::byte(value));
    }
    return epochs;
}

void print_leases(const std::vector<kvmem::BlockAccess> &accesses) {
    for (const auto &access : accesses) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(access.remaining.value());
        std::printf("owner: block %u is read by %s, process %u, for another %lld ms at most\n", access.block, access.agent.c_str(),
                    access.pid, static_cast<long long>(left.count()));
    }
}

void own(char *program) {
    auto agent = start_agent("owner");
    auto cache = build_cache(agent);
    cache.create_epochs();  // both before the layout is exported
    kvmem::ServeOptions options;
    options.max_lease = 2 * patience;  // a reader that is cut off keeps a block for no longer
    cache.serve(options);

    OtherProcess reader(program);
    Channel &channel = reader.channel();
    channel.send(agent.local_metadata());
    channel.send(cache.export_descriptor());
    const auto epochs = fill(cache, blocks, 1);
    channel.send({epochs.data(), epochs.size() * sizeof epochs[0]});  // in an engine with the ids of the blocks

    // Another request needs block 7. An engine takes another block if it is used.
    channel.receive();
    const auto found = cache.accesses({7});
    if (found.empty()) throw std::runtime_error("block 7 is not leased");
    print_leases(found);
    channel.send({});

    // The reader has ended the lease: the owner sees it until the message about that has arrived.
    channel.receive();
    while (!cache.accesses({7}).empty()) std::this_thread::sleep_for(1ms);
    fill(cache, {7}, 2);
    std::printf("owner: block 7 has another use\n");
    channel.send({});
    if (!reader.succeeded()) throw std::runtime_error("the reader failed");
}

// ---- The reader ----

void read(const kvmem::Layout &remote, const kvmem::Layout &local, const std::vector<std::uint64_t> &epochs) {
    const std::vector<kvmem::BlockPair> pairs = {{blocks[0], 0}, {blocks[1], 1}};
    kvmem::SubmitOptions options;
    options.pairs = pairs;
    options.epochs = epochs;
    if (!kvmem::Transfer::start(remote, local, {}, options).wait_for(patience)) throw std::runtime_error("the read takes too long");
}

void use(int socket) {
    Channel channel(socket);
    auto agent = start_agent("reader");
    agent.load_remote_metadata(channel.receive());
    const auto remote = kvmem::Layout::import_descriptor(agent, channel.receive());
    const auto local = build_cache(agent);
    std::vector<std::uint64_t> epochs(blocks.size());
    const std::string published = channel.receive();
    std::memcpy(epochs.data(), published.data(), epochs.size() * sizeof epochs[0]);

    {
        kvmem::LeaseOptions options;
        options.duration = patience;
        auto lease = remote.lease(blocks, options);  // waits for the reply of the owner
        lease.renew(2 * patience);                   // the read may take longer than planned
        channel.send({});
        channel.receive();  // the owner has looked
        read(remote, local, epochs);
        std::printf("reader: blocks 3 and 7 have arrived\n");
    }  // ends the lease. If this process were killed, its owner would notice, or the lease would end by its time
    channel.send({});

    // Without a lease the owner has reused block 7. The epochs that it had published say so.
    channel.receive();
    try {
        read(remote, local, epochs);
    } catch (const kvmem::Error &error) {
        if (error.status() != kvmem::Status::stale) throw;
        std::printf("reader: %s\n", error.what());
        return;
    }
    throw std::runtime_error("block 7 was read, and has another use");
}

}  // namespace

int main(int argc, char **argv) {
    alarm(60);
    std::setvbuf(stdout, nullptr, _IOLBF, 0);  // two processes print
    try {
        if (argc > 1) {
            use(std::atoi(argv[1]));
        } else {
            own(argv[0]);
        }
        return EXIT_SUCCESS;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s: %s\n", argc > 1 ? "reader" : "owner", error.what());
        return EXIT_FAILURE;
    }
}
