// SPDX-License-Identifier: Apache-2.0
// The owner sends a share for kvmem, and addresses and metadata for NIXL if NIXL can register the memory.
#include "common/peer_cache.hpp"

#include "common/block_ids.hpp"
#include "common/clock.hpp"

#include <algorithm>
#include <cstdio>
#include <optional>

namespace bench {
namespace {

constexpr int timeout_s = 60; // for the peer, and for NIXL

kv::layout build(const cache_shape &shape, int device, kvmem_agent *agent)
{
    const kvmem_layout_config config = whole_blocks(shape.block_bytes, shape.num_blocks);
    kvmem_device_options plain{};
    plain.struct_size = sizeof plain;
    plain.device = device;
    kvmem_elastic_options elastic{};
    elastic.struct_size = sizeof elastic;
    elastic.device = device;
    kvmem_layout_options options = kv::allocated(config);
    options.agent = agent;
    if (shape.elastic != 0)
        options.elastic = &elastic;
    else
        options.device = &plain;
    auto built = kv::make<kv::layout>(kvmem_layout_build, &options);
    if (shape.elastic != 0)
        kv::call(kvmem_layout_resize, built.get(), shape.num_blocks);
    return built;
}

uint64_t cache_bytes(const kv::layout &layout)
{
    const auto memory = kv::make<kv::region>(kvmem_layout_get_region, layout.get(), size_t{0});
    kvmem_region_info info{};
    kv::call(kvmem_region_get_info, memory.get(), &info);
    return info.size;
}

// Returns the size of each registration. UCX resolves an address to one allocation or mapping, so each extent of VMM
// memory is registered by itself.
uint64_t registered_at_once(const side &cache, const cache_shape &shape)
{
    if (shape.elastic == 0)
        return cache.used();
    const auto memory = kv::make<kv::region>(kvmem_layout_get_region, cache.layout().get(), size_t{0});
    kvmem_region_info info{};
    kv::call(kvmem_region_get_info, memory.get(), &info);
    return info.memory_page_size;
}

void add_cache(nixl::agent &agent, const side &cache, const cache_shape &shape, int device)
{
    const uint64_t step = registered_at_once(cache, shape);
    for (uint64_t offset = 0; offset < cache.used(); offset += step)
        agent.add_memory({cache.base() + offset, std::min(step, cache.used() - offset)},
                         nixl::of_gpu(device));
}

// Returns all blocks of a cache of this shape that starts at `base` in the process of the agent.
std::vector<nixl::span> blocks_at(uint64_t base, const side &cache, const cache_shape &shape)
{
    std::vector<nixl::span> blocks;
    for (uint64_t block = 0; block < shape.num_blocks; ++block)
        blocks.push_back({base + (cache.address(block, 0, 0) - cache.base()), shape.block_bytes});
    return blocks;
}

// Returns the first GPU whose memory this GPU can access, or -1.
int other_gpu(int device)
{
    kvmem_cuda_info driver{};
    kv::call(kvmem_cuda_get_info, &driver);
    kvmem_cuda_device_info info{};
    kv::call(kvmem_cuda_get_device_info, device, &info);
    for (int other = 0; other < driver.device_count; ++other) {
        if (other != device && ((info.can_access >> other) & 1) != 0)
            return other;
    }
    return -1;
}

void print_left_out(const std::string &why) { std::printf("    NIXL is left out: %s\n", why.c_str()); }

// ---- the process that has the blocks ------------------------------------------------------------

void send(channel &link, const kv::blob &bytes)
{
    link.send(kvmem_blob_data(bytes.get()), kvmem_blob_size(bytes.get()));
}

void serve_over_nixl(channel &link, const kv::agent &agent, const side &cache, const cache_shape &shape)
{
    kvmem_serve_options options{};
    options.struct_size = sizeof options;
    options.staging_size = shape.served;
    options.flags = shape.from_host != 0 ? KVMEM_SERVE_FROM_HOST : 0;
    kv::call(kvmem_layout_serve, cache.layout().get(), &options);
    send(link, kv::make<kv::blob>(kvmem_agent_get_local_metadata, agent.get()));
    send(link, kv::make<kv::blob>(kvmem_layout_export, cache.layout().get()));
}

// Sends NIXL's error, empty on success, and then its metadata.
void introduce_cache(channel &link, std::optional<nixl::agent> &agent, const side &cache,
                     const cache_shape &shape, int device)
{
    std::string failure;
    nixl::bytes metadata;
    try {
        if (cuda::load().stand_in)
            throw std::runtime_error("UCX does not detect the stand-in driver's memory as memory of a GPU");
        agent.emplace("reference-owner");
        add_cache(*agent, cache, shape, device);
        metadata = agent->metadata();
    } catch (const std::exception &error) {
        failure = error.what();
    }
    link.send(failure);
    link.send(metadata);
}

} // namespace

void serve_cache(const std::vector<std::string> &arguments)
{
    const int device = std::stoi(arguments.at(0));
    const cache_shape shape = {std::stoull(arguments.at(1)), std::stoull(arguments.at(2)),
                               std::stoull(arguments.at(3)), std::stoull(arguments.at(4)),
                               std::stoull(arguments.at(5))};
    const cuda::current_device current(device);
    channel link = parent_channel();
    const kv::agent agent = shape.served != 0 ? kv::make_agent("owner") : kv::agent{};
    kv::layout built = build(shape, device, agent.get());
    const arena mirror(place::host, device, cache_bytes(built));
    const side cache(std::move(built), mirror);
    cache.fill();

    const auto given = kv::make<kv::share>(kvmem_share_create_layout, cache.layout().get(),
                                           static_cast<kvmem_share_options *>(nullptr));
    link.send_share(given);
    send_value(link, cache.base());
    std::optional<nixl::agent> reference;
    introduce_cache(link, reference, cache, shape, device);
    if (shape.served != 0)
        serve_over_nixl(link, agent, cache, shape);
    link.receive_or_end();
}

// ---- the process that pulls ---------------------------------------------------------------------

std::vector<neighbour> neighbours_of(int device, points &grid)
{
    std::vector<neighbour> neighbours = {{"same GPU", device}};
    if (const int other = other_gpu(device); other >= 0) {
        cuda::reach(other); // for the driver's copies
        neighbours.push_back({"other GPU", other});
    } else {
        grid.skip("other GPU", "no other visible GPU has memory that this one can access");
    }
    return neighbours;
}

peer_cache::peer_cache(const cache_shape &shape, int device, int peer_device, const arena &mirror)
    : peer_({std::to_string(peer_device), std::to_string(shape.block_bytes),
             std::to_string(shape.num_blocks), std::to_string(shape.elastic), std::to_string(shape.served),
             std::to_string(shape.from_host)}),
      shape_(shape), agent_(shape.served != 0 ? kv::make_agent("requester") : kv::agent{}),
      ours_(std::make_unique<side>(build(shape, device, agent_.get()), mirror))
{
    channel &link = peer_.link();
    link.set_timeout(timeout_s);
    const kv::share received = link.receive_share();
    kvmem_open_options options{};
    options.struct_size = sizeof options;
    options.flags = KVMEM_OPEN_MAPPED_ONLY | KVMEM_OPEN_FOR_DEVICE;
    options.device = device;
    theirs_ = std::make_unique<side>(kv::make<kv::layout>(kvmem_share_open_layout, received.get(), &options),
                                     mirror);
    const auto their_base = value_of<uint64_t>(link.receive());
    const nixl::bytes failure = link.receive();
    const nixl::bytes metadata = link.receive();
    if (failure.empty())
        reference_ = introduce(device, peer_device, their_base, metadata);
    else
        print_left_out(std::string(failure.begin(), failure.end()));
    if (shape.served == 0)
        return;
    const nixl::bytes owner = link.receive();
    const nixl::bytes descriptor = link.receive();
    kv::call(kvmem_agent_load_remote_metadata, agent_.get(), owner.data(), owner.size(), nullptr);
    remote_ = kv::make<kv::layout>(kvmem_layout_import, agent_.get(), descriptor.data(), descriptor.size());
}

move_method peer_cache::by_kvmem(const std::string &name, const kv::pairs &pairs, uint32_t path) const
{
    kv::job wanted = kv::job_of(pairs, {}, {});
    wanted.transfer.method = path;
    const auto kept = std::make_shared<kv::transfer>(kv::prepared(remote_, ours_->layout(), wanted));
    return {role::ours, name, [kept] { kv::submit(*kept); }, {}, nullptr, [kept] { kv::wait(*kept); },
            [kept] { return kv::path_of(*kept); }};
}

std::unique_ptr<peer_cache::reference_side> peer_cache::introduce(int device, int peer_device,
                                                                  uint64_t their_base,
                                                                  const nixl::bytes &their_metadata) const
{
    try {
        auto made = std::make_unique<reference_side>();
        add_cache(made->agent, *ours_, shape_, device);
        made->agent.load_peer(their_metadata);
        made->local = std::make_unique<nixl::prepared>(
            made->agent, nixl::side::local, blocks_at(ours_->base(), *ours_, shape_), nixl::of_gpu(device));
        made->remote = std::make_unique<nixl::prepared>(made->agent, nixl::side::remote,
                                                        blocks_at(their_base, *theirs_, shape_),
                                                        nixl::of_gpu(peer_device));
        return made;
    } catch (const std::exception &error) {
        print_left_out(error.what());
        return nullptr;
    }
}

std::vector<move_method> peer_cache::by_nixl(const kv::pairs &pairs) const
{
    if (reference_ == nullptr)
        return {};
    struct state {
        std::vector<int> local_ids;
        std::vector<int> remote_ids;
        std::optional<nixl::read_request> request;
    };
    const auto kept = std::make_shared<state>();
    kv::pairs sorted = pairs;
    std::sort(sorted.begin(), sorted.end(),
              [](const kvmem_block_pair &a, const kvmem_block_pair &b) { return a.source < b.source; });
    for (const kvmem_block_pair &pair : sorted) {
        kept->local_ids.push_back(static_cast<int>(pair.destination));
        kept->remote_ids.push_back(static_cast<int>(pair.source));
    }
    const reference_side &known = *reference_;
    return {{role::reference,
             "NIXL, UCX, prepared lists",
             [kept, &known] {
                 kept->request.emplace(known.agent, *known.local, kept->local_ids, *known.remote,
                                       kept->remote_ids);
                 kept->request->post();
             },
             {},
             nullptr,
             [kept] {
                 for (const double end = now_ns() + timeout_s * 1e9; !kept->request->done();)
                     if (now_ns() > end)
                         throw std::runtime_error("NIXL's read did not end within 60 s");
             },
             {}}};
}

} // namespace bench
