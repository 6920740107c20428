// SPDX-License-Identifier: Apache-2.0
// Memory that is allocated once, and on which layouts of many shapes are built one after the other.
#pragma once

#include "common/kv.hpp"

#include <cstdint>

namespace bench {

enum class place {
    host, // page-locked
    device,
};

class arena {
  public:
    arena(place where, int device, uint64_t size);

    place where() const { return where_; }
    uint64_t base() const { return info_.address; }
    uint64_t size() const { return info_.size; }

    // Builds a layout of this shape from the first byte on. `used` receives its size in bytes.
    kv::layout build(const kvmem_layout_config &config, uint64_t &used) const;

  private:
    place where_;
    kv::region memory_;
    kvmem_region_info info_{};
};

// Returns the size of each arena of a bench: `wanted` bytes, but at most a quarter of the free memory of the host and
// of the GPU; a multiple of the largest page.
uint64_t arena_size(uint64_t wanted);

} // namespace bench
