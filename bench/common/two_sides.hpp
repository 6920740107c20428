// SPDX-License-Identifier: Apache-2.0
// Two processes with the same layout, connected by kvmem and by the reference: rows 8 and 9.
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

// In the peer: serves a pool that is filled with the pattern, to kvmem and to the reference, until the bench is done.
// Arguments: number of blocks, bytes per block; optional: the peer's number, which becomes a part of its names, and the
// delay of its progress threads in microseconds.
void serve_pool(const std::vector<std::string> &arguments);

// In the bench: a pool of this process, and the peer's pool as kvmem and as the reference read it.
class two_sides {
  public:
    // `progress_thread`: whether NIXL's agents in this process have one, kvmem's and the reference's.
    two_sides(pool_shape shape, bool progress_thread);

    const kv::layout &local() const { return local_; }
    const kv::layout &remote() const { return remote_; }
    const nixl::agent &reference() const { return *reference_; }
    // Creates another reference agent of this process, with the same memory and peer.
    std::unique_ptr<nixl::agent> make_reference(const std::string &name, bool progress_thread) const;
    host_view view() const { return host_view(local_); }

    // The address and size of blocks, for the reference.
    nixl::span local_block(uint32_t block) const { return block_at(local_base_, block); }
    nixl::span remote_block(uint32_t block) const { return block_at(remote_base_, block); }
    std::vector<nixl::span> local_blocks() const { return all_blocks(local_base_); }
    std::vector<nixl::span> remote_blocks() const { return all_blocks(remote_base_); }
    // A request with one descriptor for the first `bytes` bytes of both pools: the ceiling.
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
