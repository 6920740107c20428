// SPDX-License-Identifier: Apache-2.0
// Many copies by the driver: a call for each, or one call for all.
#pragma once

#include "reference/cuda.hpp"

#include <cstdint>
#include <vector>

namespace cuda {

struct copy_list {
    std::vector<address> to;
    std::vector<address> from;
    std::vector<size_t> sizes;

    // Extends the last copy if both addresses continue it.
    void append(address destination, address source, size_t size);
};

class own_stream {
  public:
    own_stream();
    ~own_stream();
    own_stream(const own_stream &) = delete;
    own_stream &operator=(const own_stream &) = delete;

    stream get() const { return handle_; }
    void wait() const;

  private:
    stream handle_ = nullptr;
};

// cuMemcpyAsync for each.
void copy_each(const copy_list &list, const own_stream &on);

struct batch_hints {
    bool stable_source = false; // host memory that does not change meanwhile: it may be read in any order
    bool beside_compute = false;
};

// cuMemcpyBatchAsync, if the driver has it.
bool has_batch();
void copy_batch(copy_list &list, batch_hints hints, const own_stream &on);

// One cuMemcpyAsync.
void copy_whole(address to, address from, size_t size, const own_stream &on);

} // namespace cuda
