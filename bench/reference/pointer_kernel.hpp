// SPDX-License-Identifier: Apache-2.0
// KVBM's method to copy chunks. For each transfer the host writes two arrays of pointers and uploads them, and one
// kernel copies a chunk per pair. An event protects the arrays until the kernel has read them.
#pragma once

#include "reference/nvrtc.hpp"

#include <cstdint>

namespace cuda {

class pointer_kernel {
  public:
    pointer_kernel(int device, uint32_t max_chunks);
    ~pointer_kernel();

    // Waits until the arrays, which are page-locked, can be written.
    void reuse_arrays();
    address *to() { return pinned_; }
    address *from() { return pinned_ + max_chunks_; }

    // Uploads the first `count` pointers of both arrays, and copies `size` bytes per pair. 0 CTAs: as many as an idle
    // GPU needs.
    void copy(uint32_t count, uint64_t size, unsigned ctas, stream on);

  private:
    compiled_kernel kernel_;
    uint32_t max_chunks_;
    unsigned all_ctas_;
    address *pinned_ = nullptr;
    address uploaded_ = 0;
    event done_ = nullptr;
};

} // namespace cuda
