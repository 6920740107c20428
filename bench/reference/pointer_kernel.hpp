// SPDX-License-Identifier: Apache-2.0
// Chunks copied the way KVBM does it: for each transfer the host makes two arrays of pointers, uploads them,
// and one kernel copies a chunk for each pair; the arrays are made anew only after an event.
#pragma once

#include "reference/nvrtc.hpp"

#include <cstdint>

namespace cuda {

class pointer_kernel {
  public:
    pointer_kernel(int device, uint32_t most_chunks);
    ~pointer_kernel();

    // Waits until the arrays may be written. They are page-locked.
    void reuse_arrays();
    address *to() { return pinned_; }
    address *from() { return pinned_ + most_chunks_; }

    // Uploads the first `count` pointers of both arrays and copies `size` bytes for each. With 0 CTAs as many
    // as serve an idle GPU.
    void copy(uint32_t count, uint64_t size, unsigned ctas, stream on);

  private:
    compiled_kernel kernel_;
    uint32_t most_chunks_;
    unsigned all_ctas_;
    address *pinned_ = nullptr;
    address uploaded_ = 0;
    event done_ = nullptr;
};

} // namespace cuda
