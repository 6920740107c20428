// SPDX-License-Identifier: Apache-2.0
// Bytes that name their place in a layout, so that every byte moved can be checked.
#pragma once

#include "common/clock.hpp"
#include "common/kv.hpp"
#include "common/samples.hpp"

#include <cstdint>

namespace bench {

// Zeroes, and out of the caches; all of it a multiple of 16 bytes.
void wipe_memory(unsigned char *first, uint64_t size);

// A host layout seen as memory.
class host_view {
  public:
    explicit host_view(const kv::layout &layout) : host_view(layout, 0, 1) {}
    // Seen in a copy of its memory that lies `shift` bytes away, by several threads.
    host_view(const kv::layout &layout, uint64_t shift, unsigned threads);

    unsigned char *piece(uint64_t block, uint64_t layer, uint64_t outer) const;
    uint64_t piece_size() const { return strides_.size; }
    uint64_t block_stride() const { return strides_.block_stride; }
    uint64_t num_layers() const { return info_.num_layers; }
    uint64_t outer_dim() const { return info_.outer_dim; }

    // Each 8-byte word tells block, layer, outer and its position.
    void fill() const;
    void wipe(const kv::pairs &moved) const;
    // Throws unless every destination block holds the pattern of its source block.
    void verify(const kv::pairs &moved) const;

  private:
    void fill_block(uint64_t block) const;
    void wipe_block(uint64_t block) const;
    void verify_pair(const kvmem_block_pair &pair) const;

    kvmem_layout_strides strides_{};
    kvmem_layout_info info_{};
    uint64_t shift_;
    unsigned threads_;
};

// A transfer into wiped memory, every byte of it checked; only `transfer` is timed.
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
