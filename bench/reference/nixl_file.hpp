// SPDX-License-Identifier: Apache-2.0
// The reference for files: NIXL's POSIX plugin called directly, with requests that are made once and posted repeatedly.
#pragma once

#include "reference/nixl_capi.hpp"

#include <string>
#include <vector>

namespace nixl {

// A range of memory, and its offset in the file.
struct file_piece {
    uintptr_t address;
    uint64_t offset;
    size_t size;
};

// An agent with one POSIX backend, with which memory and a file are registered.
class file_agent {
  public:
    // `queue`: the plugin's I/O, "use_uring" or "use_aio"; empty: the plugin's default. `size` is that of memory and
    // file.
    file_agent(const std::string &name, const std::string &queue, uintptr_t memory, int file, size_t size);
    ~file_agent();
    file_agent(const file_agent &) = delete;
    file_agent &operator=(const file_agent &) = delete;

    const nixl_capi::library &api() const { return api_; }
    nixl_capi::agent handle() const { return handle_; }
    const std::string &name() const { return name_; }
    int file() const { return file_; }

  private:
    void add(int memory, uintptr_t address, size_t size, uint64_t device);

    const nixl_capi::library &api_;
    std::string name_;
    int file_;
    nixl_capi::agent handle_ = nullptr;
    nixl_capi::backend backend_ = nullptr;
    std::vector<nixl_capi::reg_dlist> registered_;
};

// Reads or writes of all pieces, made once.
class file_request {
  public:
    file_request(const file_agent &owner, bool writes, const std::vector<file_piece> &pieces);
    ~file_request();
    file_request(const file_request &) = delete;
    file_request &operator=(const file_request &) = delete;

    void post_and_poll();

  private:
    const file_agent &owner_;
    nixl_capi::request handle_ = nullptr;
};

} // namespace nixl
