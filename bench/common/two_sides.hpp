// SPDX-License-Identifier: Apache-2.0
// Two processes with the same layout, known to kvmem and to the reference: rows 8 and 9 measure between them.
#pragma once

#include "common/kv.hpp"
#include "common/pattern.hpp"
#include "common/peer.hpp"
#include "reference/nixl.hpp"

#include <string>

namespace bench {

struct pool_shape {
    uint64_t num_blocks;
    uint64_t block_bytes; // one layer, one outer slot: a block is one piece
};

kvmem_layout_config pool_config(pool_shape shape);

// In the peer: holds a pool filled with the pattern, readable both ways, until the bench is done. A third argument is the
// number of the peer, which its names have.
void serve_pool(const std::vector<std::string> &arguments);

// In the bench: a pool of its own, the peer's pool behind it, and the two ways to read it.
class two_sides {
  public:
    // `progress_thread`: whether NIXL gets one in this process, with ours and with the reference.
    two_sides(pool_shape shape, bool progress_thread);

    const kv::layout &local() const { return local_; }
    const kv::layout &remote() const { return remote_; }
    const nixl::agent &reference() const { return *reference_; }
    // Another reference agent of this process, which knows the same memory and peer.
    std::unique_ptr<nixl::agent> make_reference(const std::string &name, bool progress_thread) const;
    host_view view() const { return host_view(local_); }

    // Where blocks lie, as the reference takes it.
    nixl::span local_block(uint32_t block) const { return block_at(local_base_, block); }
    nixl::span remote_block(uint32_t block) const { return block_at(remote_base_, block); }
    std::vector<nixl::span> local_blocks() const { return all_blocks(local_base_); }
    std::vector<nixl::span> remote_blocks() const { return all_blocks(remote_base_); }
    // The first bytes of both pools as one descriptor: the largest transfer there is.
    nixl::read_request read_as_one(const nixl::agent &reader, uint64_t bytes) const;

  private:
    nixl::span block_at(uintptr_t base, uint32_t block) const
    {
        return {base + block * shape_.block_bytes, shape_.block_bytes};
    }
    std::vector<nixl::span> all_blocks(uintptr_t base) const;

    pool_shape shape_;
    peer peer_;
    kv::agent agent_;
    kv::layout local_;
    uintptr_t local_base_ = 0;
    uintptr_t remote_base_ = 0;
    kv::layout remote_;
    nixl::bytes reference_metadata_; // the peer's
    std::unique_ptr<nixl::agent> reference_;
};

} // namespace bench
