// SPDX-License-Identifier: Apache-2.0
// Connects one process with its peers, by kvmem and by the reference.
#include "common/many_sides.hpp"

namespace bench {

many_sides::many_sides(unsigned num_peers, pool_shape shape, bool progress_thread)
    : shape_(shape), agent_(kv::make_agent("initiator", progress_thread)),
      local_(kv::make_layout(pool_config({num_peers * shape.num_blocks, shape.block_bytes}), agent_.get())),
      local_base_(reinterpret_cast<uintptr_t>(host_view(local_).piece(0, 0, 0)))
{
    // All are started before the first is connected, because starting one takes half a second.
    const std::string delay_us = std::to_string(1000 * num_peers);
    for (unsigned number = 0; number < num_peers; ++number) {
        remote_pool &started = peers_.emplace_back();
        started.process = std::make_unique<peer>(
            std::vector<std::string>{std::to_string(shape_.num_blocks), std::to_string(shape_.block_bytes),
                                     std::to_string(number), delay_us});
    }
    for (unsigned number = 0; number < num_peers; ++number)
        connect_to(number, peers_[number]);
}

void many_sides::connect_to(unsigned number, remote_pool &met) const
{
    channel &link = met.process->link();
    const nixl::bytes metadata = link.receive();
    const nixl::bytes descriptor = link.receive();
    met.reference_metadata = link.receive();
    met.base = value_of<uintptr_t>(link.receive());
    met.name = "target " + std::to_string(number);
    met.reference_name = "reference-" + met.name;
    kv::call(kvmem_agent_load_remote_metadata, agent_.get(), metadata.data(), metadata.size(), nullptr);
    met.remote = kv::make<kv::layout>(kvmem_layout_import, agent_.get(), descriptor.data(), descriptor.size());
}

std::unique_ptr<nixl::agent> many_sides::make_reference(const std::string &name, bool progress_thread) const
{
    auto made = std::make_unique<nixl::agent>(name, progress_thread);
    made->add_memory({local_base_, peers_.size() * shape_.num_blocks * shape_.block_bytes});
    for (const remote_pool &peer : peers_)
        made->load_peer(peer.reference_metadata);
    return made;
}

} // namespace bench
