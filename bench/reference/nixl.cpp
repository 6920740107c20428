// SPDX-License-Identifier: Apache-2.0
// The calls behind the reference's agent, lists and requests, each checked.
#include "reference/nixl.hpp"

#include <cstdlib>
#include <stdexcept>

namespace nixl {
namespace {

using nixl_capi::status;

void check(status found, const char *call)
{
    if (found != nixl_capi::success && found != nixl_capi::in_progress)
        throw std::runtime_error(std::string("NIXL ") + call + " failed with " + std::to_string(found));
}

} // namespace

agent::agent(const std::string &name, bool progress_thread, uint64_t progress_delay_us) : api_(nixl_capi::load())
{
    nixl_capi::agent_config config{};
    config.progress_thread = progress_thread;
    config.thread_sync = nixl_capi::sync_rw;
    config.progress_delay_us = progress_delay_us;
    config.listen_delay_us = 100000;
    check(api_.create_configured_agent(name.c_str(), &config, &handle_), "create_configured_agent");

    nixl_capi::mem_list memories = nullptr;
    nixl_capi::params parameters = nullptr;
    check(api_.get_plugin_params(handle_, "UCX", &memories, &parameters), "get_plugin_params");
    const status created = api_.create_backend(handle_, "UCX", parameters, &backend_);
    api_.destroy_mem_list(memories);
    api_.destroy_params(parameters);
    check(created, "create_backend");
}

agent::~agent()
{
    for (const std::string &peer : loaded_)
        api_.invalidate_remote_md(handle_, peer.c_str());
    for (nixl_capi::reg_dlist list : registered_) {
        api_.deregister_mem(handle_, list, nullptr);
        api_.destroy_reg_dlist(list);
    }
    api_.destroy_backend(backend_);
    api_.destroy_agent(handle_);
}

void agent::add_memory(span added, memory where)
{
    nixl_capi::reg_dlist list = nullptr;
    check(api_.create_reg_dlist(where.type, &list), "create_reg_dlist");
    check(api_.reg_dlist_add_desc(list, added.address, added.size, where.device, nullptr, 0),
          "reg_dlist_add_desc");
    check(api_.register_mem(handle_, list, nullptr), "register_mem");
    registered_.push_back(list);
}

bytes agent::metadata() const
{
    void *data = nullptr;
    size_t size = 0;
    check(api_.get_local_md(handle_, &data, &size), "get_local_md");
    const auto *first = static_cast<const unsigned char *>(data);
    bytes copy(first, first + size);
    std::free(data);
    return copy;
}

std::string agent::load_peer(const bytes &metadata)
{
    char *name = nullptr;
    check(api_.load_remote_md(handle_, metadata.data(), metadata.size(), &name), "load_remote_md");
    peer_ = name;
    std::free(name);
    loaded_.push_back(peer_);
    return peer_;
}

descriptors::descriptors(const agent &owner, memory where) : owner_(owner), where_(where)
{
    check(owner.api().create_xfer_dlist(where.type, &handle_), "create_xfer_dlist");
}

descriptors::~descriptors() { owner_.api().destroy_xfer_dlist(handle_); }

void descriptors::add(span piece)
{
    check(owner_.api().xfer_dlist_add_desc(handle_, piece.address, piece.size, where_.device),
          "xfer_dlist_add_desc");
}

// The empty name means the local side.
prepared::prepared(const agent &owner, side whose, const std::vector<span> &pieces, memory where)
    : prepared(owner, whose == side::local ? "" : owner.peer().c_str(), pieces, where)
{
}

prepared::prepared(const agent &owner, const std::vector<span> &pieces, const std::string &peer)
    : prepared(owner, peer.c_str(), pieces, memory{})
{
}

prepared::prepared(const agent &owner, const char *name, const std::vector<span> &pieces, memory where)
    : owner_(owner)
{
    descriptors list(owner, where);
    for (const span &piece : pieces)
        list.add(piece);
    check(owner.api().prep_xfer_dlist(owner.handle(), name, list.handle(), &handle_, nullptr),
          "prep_xfer_dlist");
}

prepared::~prepared() { owner_.api().release_xfer_dlist_handle(owner_.handle(), handle_); }

read_request::read_request(const agent &owner, const descriptors &local, const descriptors &remote)
    : read_request(owner, local, remote, owner.peer())
{
}

read_request::read_request(const agent &owner, const descriptors &local, const descriptors &remote,
                           const std::string &peer)
    : owner_(owner)
{
    check(owner.api().create_xfer_req(owner.handle(), nixl_capi::op_read, local.handle(), remote.handle(),
                                      peer.c_str(), &handle_, nullptr),
          "create_xfer_req");
}

read_request::read_request(const agent &owner, const prepared &local, const std::vector<int> &local_ids,
                           const prepared &remote, const std::vector<int> &remote_ids)
    : owner_(owner)
{
    check(owner.api().make_xfer_req(owner.handle(), nixl_capi::op_read, local.handle(), local_ids.data(),
                                    local_ids.size(), remote.handle(), remote_ids.data(), remote_ids.size(),
                                    &handle_, nullptr),
          "make_xfer_req");
}

read_request::~read_request()
{
    owner_.api().release_xfer_req(owner_.handle(), handle_);
    owner_.api().destroy_xfer_req(handle_);
}

void read_request::post()
{
    const status posted = owner_.api().post_xfer_req(owner_.handle(), handle_, nullptr);
    check(posted, "post_xfer_req");
    done_at_post_ = posted == nixl_capi::success;
}

bool read_request::done() const
{
    if (done_at_post_)
        return true;
    const status found = owner_.api().get_xfer_status(owner_.handle(), handle_);
    check(found, "get_xfer_status");
    return found == nixl_capi::success;
}

void read_request::post_and_poll()
{
    post();
    while (!done()) {
    }
}

} // namespace nixl
