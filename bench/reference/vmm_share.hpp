// SPDX-License-Identifier: Apache-2.0
// Device memory in extents, shared between processes by the bare driver calls: a file descriptor an extent.
#pragma once

#include "reference/cuda.hpp"

#include <cstdint>
#include <vector>

namespace cuda {

// Handles that are mapped one after the other and may be read and written.
class extents {
  public:
    // The owner's: created.
    extents(int device, uint64_t count, uint64_t size);
    // An importer's: of file descriptors, which are closed.
    extents(int device, const std::vector<int> &fds, uint64_t size);
    ~extents();
    extents(const extents &) = delete;
    extents &operator=(const extents &) = delete;

    address base() const { return base_; }
    // One for each; the caller closes them. For the owner, who keeps the handles.
    std::vector<int> export_fds() const;

  private:
    void map(int device);

    uint64_t size_; // of one
    address base_ = 0;
    std::vector<memory_handle> handles_;
    bool owner_;
};

} // namespace cuda
