// SPDX-License-Identifier: Apache-2.0
// One side of a transfer, wherever it lies: filled with the pattern, wiped, and checked.
#pragma once

#include "common/arena.hpp"
#include "common/pattern.hpp"
#include "reference/copies.hpp"

namespace bench {

class side {
  public:
    // Memory of a GPU is filled and read by way of `mirror`, host memory that is as large.
    side(const arena &memory, const arena &mirror, const kvmem_layout_config &config);
    // A layout that is there already, in one region of a GPU's memory: its own, or opened.
    side(kv::layout layout, const arena &mirror);

    const kv::layout &layout() const { return layout_; }
    place where() const { return where_; }
    uint64_t base() const { return base_; }
    uint64_t used() const { return used_; }
    // Where a piece lies, for those who copy it.
    cuda::address address(uint64_t block, uint64_t layer, uint64_t outer) const;
    const host_view &view() const { return view_; }

    void fill() const;
    void wipe(const kv::pairs &moved) const;
    void wipe_first(uint64_t bytes) const;
    // Throws unless every destination block holds the pattern of its source block.
    void verify(const kv::pairs &moved) const;

  private:
    side(const kvmem_region_info &memory, kv::layout &&layout, const arena &mirror);

    const arena &mirror_;
    place where_;
    uint64_t base_;
    uint64_t used_ = 0;
    kv::layout layout_;
    uint64_t shift_; // from a piece to where the CPU sees it
    host_view view_;
};

// The stretches that move, each as long as it is contiguous on both sides, in the order of the pairs.
cuda::copy_list stretches(const side &from, const side &to, const kv::pairs &pairs);

} // namespace bench
