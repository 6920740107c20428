// SPDX-License-Identifier: Apache-2.0
// Memory that layouts of many shapes are built on one after the other, allocated once.
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

    // A layout of this shape from the first byte on; `used` gets the bytes it covers.
    kv::layout build(const kvmem_layout_config &config, uint64_t &used) const;

  private:
    place where_;
    kv::region memory_;
    kvmem_region_info info_{};
};

// What each of the arenas of a bench may have: what is wanted, or a fourth of what is free on the host and on
// the GPU; a multiple of the largest page.
uint64_t arena_size(uint64_t wanted);

} // namespace bench
