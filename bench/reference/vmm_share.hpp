// SPDX-License-Identifier: Apache-2.0
// Device memory in extents, shared between processes by the bare driver calls: one file descriptor per extent.
#pragma once

#include "reference/cuda.hpp"

#include <cstdint>
#include <vector>

namespace cuda {

// Extents that are mapped at consecutive addresses, readable and writable.
class extents {
  public:
    // Creates extents.
    extents(int device, uint64_t count, uint64_t size);
    // Imports extents from file descriptors, and closes these.
    extents(int device, const std::vector<int> &fds, uint64_t size);
    ~extents();
    extents(const extents &) = delete;
    extents &operator=(const extents &) = delete;

    address base() const { return base_; }
    // Exports a file descriptor per extent, which the caller closes. Only for extents that were created here.
    std::vector<int> export_fds() const;

  private:
    void map(int device);

    uint64_t size_; // of one
    address base_ = 0;
    std::vector<memory_handle> handles_;
    bool owner_;
};

} // namespace cuda
