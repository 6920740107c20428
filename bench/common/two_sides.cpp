// SPDX-License-Identifier: Apache-2.0
// Connects the two processes, by kvmem and by the reference.
#include "common/two_sides.hpp"

#include "common/block_ids.hpp"

namespace bench {
namespace {

void send(channel &link, const kv::blob &bytes)
{
    link.send(kvmem_blob_data(bytes.get()), kvmem_blob_size(bytes.get()));
}

uintptr_t first_byte(const host_view &view) { return reinterpret_cast<uintptr_t>(view.piece(0, 0, 0)); }

} // namespace

kvmem_layout_config pool_config(pool_shape shape) { return blocks_of(shape.block_bytes, shape.num_blocks, 1, 1); }

void serve_pool(const std::vector<std::string> &arguments)
{
    const pool_shape shape = {std::stoull(arguments.at(0)), std::stoull(arguments.at(1))};
    channel link = parent_channel();

    const std::string number = arguments.size() > 2 ? " " + arguments[2] : "";
    // With many peers the delay is longer: their threads would need a core if each looked for messages every
    // millisecond.
    const uint64_t delay_us = arguments.size() > 3 ? std::stoull(arguments[3]) : 1000;
    const kv::agent agent = kv::make_agent("target" + number, true, delay_us);
    const kv::layout pool = kv::make_layout(pool_config(shape), agent.get());
    const host_view view(pool);
    view.fill();
    nixl::agent reference("reference-target" + number, true, delay_us);
    const uintptr_t base = first_byte(view);
    reference.add_memory({base, shape.num_blocks * shape.block_bytes});

    send(link, kv::make<kv::blob>(kvmem_agent_get_local_metadata, agent.get()));
    send(link, kv::make<kv::blob>(kvmem_layout_export, pool.get()));
    link.send(reference.metadata());
    send_value(link, base);
    link.receive_or_end();
}

two_sides::two_sides(pool_shape shape, bool progress_thread)
    : shape_(shape), peer_({std::to_string(shape.num_blocks), std::to_string(shape.block_bytes)}),
      agent_(kv::make_agent("initiator", progress_thread)),
      local_(kv::make_layout(pool_config(shape), agent_.get())),
      local_base_(first_byte(host_view(local_)))
{
    channel &link = peer_.link();
    const nixl::bytes metadata = link.receive();
    const nixl::bytes descriptor = link.receive();
    reference_metadata_ = link.receive();
    remote_base_ = value_of<uintptr_t>(link.receive());

    kv::call(kvmem_agent_load_remote_metadata, agent_.get(), metadata.data(), metadata.size(), nullptr);
    remote_ = kv::make<kv::layout>(kvmem_layout_import, agent_.get(), descriptor.data(), descriptor.size());
    reference_ = make_reference("reference-initiator", progress_thread);
}

std::unique_ptr<nixl::agent> two_sides::make_reference(const std::string &name, bool progress_thread) const
{
    auto made = std::make_unique<nixl::agent>(name, progress_thread);
    made->add_memory({local_base_, shape_.num_blocks * shape_.block_bytes});
    made->load_peer(reference_metadata_);
    return made;
}

nixl::read_request two_sides::read_as_one(const nixl::agent &reader, uint64_t bytes) const
{
    nixl::descriptors local(reader);
    nixl::descriptors remote(reader);
    local.add({local_base_, bytes});
    remote.add({remote_base_, bytes});
    return nixl::read_request(reader, local, remote);
}

std::vector<nixl::span> two_sides::all_blocks(uintptr_t base) const
{
    std::vector<nixl::span> pieces;
    for (uint32_t block = 0; block < shape_.num_blocks; ++block)
        pieces.push_back(block_at(base, block));
    return pieces;
}

} // namespace bench
