// SPDX-License-Identifier: Apache-2.0
// One side of a transfer, in host or GPU memory, which can be filled with the pattern, wiped and checked.
#pragma once

#include "common/arena.hpp"
#include "common/pattern.hpp"
#include "reference/copies.hpp"

namespace bench {

class side {
  public:
    // GPU memory is filled and read through `mirror`, host memory of the same size.
    side(const arena &memory, const arena &mirror, const kvmem_layout_config &config);
    // An existing layout in one region of GPU memory, of this process or opened from another one.
    side(kv::layout layout, const arena &mirror);

    const kv::layout &layout() const { return layout_; }
    place where() const { return where_; }
    uint64_t base() const { return base_; }
    uint64_t used() const { return used_; }
    // Returns the address of a piece.
    cuda::address address(uint64_t block, uint64_t layer, uint64_t outer) const;
    const host_view &view() const { return view_; }

    void fill() const;
    void wipe(const kv::pairs &moved) const;
    void wipe_first(uint64_t bytes) const;
    // Throws unless every destination block has the pattern of its source block.
    void verify(const kv::pairs &moved) const;

  private:
    side(const kvmem_region_info &memory, kv::layout &&layout, const arena &mirror);

    const arena &mirror_;
    place where_;
    uint64_t base_;
    uint64_t used_ = 0;
    kv::layout layout_;
    uint64_t shift_; // from a piece to its place in the mirror
    host_view view_;
};

// Returns the spans that move, each contiguous on both sides, in the order of the pairs.
cuda::copy_list contiguous_spans(const side &from, const side &to, const kv::pairs &pairs);

} // namespace bench
