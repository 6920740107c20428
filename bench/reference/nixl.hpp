// SPDX-License-Identifier: Apache-2.0
// The reference: NIXL's C API called directly, on one thread.
#pragma once

#include "reference/nixl_capi.hpp"

#include <string>
#include <vector>

namespace nixl {

using bytes = std::vector<unsigned char>;

struct span {
    uintptr_t address;
    size_t size;
};

// NIXL's type of memory; host memory by default.
struct memory {
    int type = nixl_capi::memory_dram;
    uint64_t device = 0;
};

inline memory of_gpu(int device) { return {nixl_capi::memory_vram, static_cast<uint64_t>(device)}; }

// A NIXL agent with one UCX backend, and the memory registered with it.
class agent {
  public:
    explicit agent(const std::string &name, bool progress_thread = true, uint64_t progress_delay_us = 1000);
    ~agent();
    agent(const agent &) = delete;
    agent &operator=(const agent &) = delete;

    // Memory of a GPU must be one allocation or one VMM mapping.
    void add_memory(span added, memory where = {});
    bytes metadata() const;
    // Loads the metadata of a peer, and returns its name. With several peers, peer() is the last one.
    std::string load_peer(const bytes &metadata);

    const nixl_capi::library &api() const { return api_; }
    nixl_capi::agent handle() const { return handle_; }
    const std::string &peer() const { return peer_; }

  private:
    const nixl_capi::library &api_;
    nixl_capi::agent handle_ = nullptr;
    nixl_capi::backend backend_ = nullptr;
    std::vector<nixl_capi::reg_dlist> registered_;
    std::string peer_;
    std::vector<std::string> loaded_;
};

// A descriptor list for create_xfer_req.
class descriptors {
  public:
    explicit descriptors(const agent &owner, memory where = {});
    ~descriptors();
    descriptors(const descriptors &) = delete;
    descriptors &operator=(const descriptors &) = delete;

    void add(span piece);
    nixl_capi::xfer_dlist handle() const { return handle_; }

  private:
    const agent &owner_;
    memory where_;
    nixl_capi::xfer_dlist handle_ = nullptr;
};

enum class side { local, remote };

// A descriptor list that is prepared once. Requests select its pieces by index.
class prepared {
  public:
    prepared(const agent &owner, side whose, const std::vector<span> &pieces, memory where = {});
    // The remote side, for one of several peers.
    prepared(const agent &owner, const std::vector<span> &pieces, const std::string &peer);
    ~prepared();
    prepared(const prepared &) = delete;
    prepared &operator=(const prepared &) = delete;

    nixl_capi::prepared handle() const { return handle_; }

  private:
    prepared(const agent &owner, const char *name, const std::vector<span> &pieces, memory where);

    const agent &owner_;
    nixl_capi::prepared handle_ = nullptr;
};

// A read of the peer's memory, made from lists or from indices into prepared lists.
class read_request {
  public:
    read_request(const agent &owner, const descriptors &local, const descriptors &remote);
    read_request(const agent &owner, const descriptors &local, const descriptors &remote, const std::string &peer);
    read_request(const agent &owner, const prepared &local, const std::vector<int> &local_ids,
                 const prepared &remote, const std::vector<int> &remote_ids);
    ~read_request();
    read_request(const read_request &) = delete;
    read_request &operator=(const read_request &) = delete;

    void post();
    bool done() const;
    void post_and_poll();

  private:
    const agent &owner_;
    nixl_capi::request handle_ = nullptr;
    bool done_at_post_ = false;
};

} // namespace nixl
