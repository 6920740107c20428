// SPDX-License-Identifier: Apache-2.0
// A file is registered by its file descriptor and addressed by offset. The remote side is the agent itself.
#include "reference/nixl_file.hpp"

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

file_agent::file_agent(const std::string &name, const std::string &queue, uintptr_t memory, int file, size_t size)
    : api_(nixl_capi::load()), name_(name), file_(file)
{
    nixl_capi::agent_config config{};
    config.thread_sync = nixl_capi::sync_rw;
    config.progress_delay_us = 1000;
    config.listen_delay_us = 100000;
    check(api_.create_configured_agent(name.c_str(), &config, &handle_), "create_configured_agent");

    nixl_capi::params parameters = nullptr;
    check(api_.create_params(&parameters), "create_params");
    if (!queue.empty())
        check(api_.params_add(parameters, queue.c_str(), "true"), "params_add");
    const status created = api_.create_backend(handle_, "POSIX", parameters, &backend_);
    api_.destroy_params(parameters);
    check(created, "create_backend");
    add(nixl_capi::memory_dram, memory, size, 0);
    add(nixl_capi::memory_file, 0, size, static_cast<uint64_t>(file));
}

file_agent::~file_agent()
{
    for (nixl_capi::reg_dlist list : registered_) {
        api_.deregister_mem(handle_, list, nullptr);
        api_.destroy_reg_dlist(list);
    }
    api_.destroy_backend(backend_);
    api_.destroy_agent(handle_);
}

void file_agent::add(int memory, uintptr_t address, size_t size, uint64_t device)
{
    nixl_capi::reg_dlist list = nullptr;
    check(api_.create_reg_dlist(memory, &list), "create_reg_dlist");
    check(api_.reg_dlist_add_desc(list, address, size, device, nullptr, 0), "reg_dlist_add_desc");
    check(api_.register_mem(handle_, list, nullptr), "register_mem");
    registered_.push_back(list);
}

file_request::file_request(const file_agent &owner, bool writes, const std::vector<file_piece> &pieces)
    : owner_(owner)
{
    const nixl_capi::library &api = owner.api();
    nixl_capi::xfer_dlist memory = nullptr;
    nixl_capi::xfer_dlist file = nullptr;
    check(api.create_xfer_dlist(nixl_capi::memory_dram, &memory), "create_xfer_dlist");
    check(api.create_xfer_dlist(nixl_capi::memory_file, &file), "create_xfer_dlist");
    for (const file_piece &piece : pieces) {
        check(api.xfer_dlist_add_desc(memory, piece.address, piece.size, 0), "xfer_dlist_add_desc");
        check(api.xfer_dlist_add_desc(file, piece.offset, piece.size, static_cast<uint64_t>(owner.file())),
              "xfer_dlist_add_desc");
    }
    const status made = api.create_xfer_req(owner.handle(), writes ? nixl_capi::op_write : nixl_capi::op_read,
                                            memory, file, owner.name().c_str(), &handle_, nullptr);
    api.destroy_xfer_dlist(memory);
    api.destroy_xfer_dlist(file);
    check(made, "create_xfer_req");
}

file_request::~file_request()
{
    owner_.api().release_xfer_req(owner_.handle(), handle_);
    owner_.api().destroy_xfer_req(handle_);
}

void file_request::post_and_poll()
{
    status found = owner_.api().post_xfer_req(owner_.handle(), handle_, nullptr);
    check(found, "post_xfer_req");
    while (found == nixl_capi::in_progress) {
        found = owner_.api().get_xfer_status(owner_.handle(), handle_);
        check(found, "get_xfer_status");
    }
}

} // namespace nixl
