// SPDX-License-Identifier: Apache-2.0
// A pattern of bytes that depend on their position in a layout, so that every byte of a transfer can be checked.
#pragma once

#include "common/clock.hpp"
#include "common/kv.hpp"
#include "common/samples.hpp"

#include <cstdint>

namespace bench {

// Writes zeroes past the caches. `size` is a multiple of 16.
void wipe_memory(unsigned char *first, uint64_t size);

// The pieces of a layout in host memory.
class host_view {
  public:
    explicit host_view(const kv::layout &layout) : host_view(layout, 0, 1) {}
    // The pieces in a copy of the layout's memory, which starts `shift` bytes after it. Several threads fill and check.
    host_view(const kv::layout &layout, uint64_t shift, unsigned threads);

    unsigned char *piece(uint64_t block, uint64_t layer, uint64_t outer) const;
    uint64_t piece_size() const { return strides_.piece_size; }
    uint64_t block_stride() const { return strides_.block_stride; }
    uint64_t num_layers() const { return info_.num_layers; }
    uint64_t outer_dim() const { return info_.outer_dim; }

    // Writes words that depend on block, layer, outer slot and position.
    void fill() const;
    void wipe(const kv::pairs &moved) const;
    // Throws unless every destination block has the pattern of its source block.
    void verify(const kv::pairs &moved) const;

  private:
    void fill_block(uint64_t block) const;
    void wipe_block(uint64_t block) const;
    void verify_pair(const kvmem_block_pair &pair) const;

    kvmem_layout_info strides_{};
    kvmem_layout_info info_{};
    uint64_t shift_;
    unsigned threads_;
};

// A candidate that wipes the destination, runs `transfer`, and checks every byte. Only `transfer` is timed.
template <typename Transfer>
candidate checked(const host_view &destination, const kv::pairs &pairs, Transfer transfer)
{
    return [destination, &pairs, transfer] {
        destination.wipe(pairs);
        const double taken = time_ns(transfer);
        destination.verify(pairs);
        return taken;
    };
}

} // namespace bench
