// SPDX-License-Identifier: Apache-2.0
// One process with several peers, each with a pool, connected by kvmem and by the reference: rows 8 and 9.
#pragma once

#include "common/two_sides.hpp"

#include <memory>
#include <string>
#include <vector>

namespace bench {

// The pool of a peer, as kvmem and the reference know it.
struct remote_pool {
    std::unique_ptr<peer> process;
    uintptr_t base = 0;
    kv::layout remote;
    std::string name;
    std::string reference_name;
    nixl::bytes reference_metadata;
};

// One agent, its own pool and those of all peers. Blocks of peer `n` go to the blocks from `n * shape.num_blocks` on.
class many_sides {
  public:
    many_sides(unsigned num_peers, pool_shape shape, bool progress_thread);

    const std::vector<remote_pool> &peers() const { return peers_; }
    kvmem_agent *agent() const { return agent_.get(); }
    const kv::layout &local() const { return local_; }
    host_view view() const { return host_view(local_); }
    // A reference agent that knows the same memory and peers.
    std::unique_ptr<nixl::agent> make_reference(const std::string &name, bool progress_thread) const;

    nixl::span local_block(unsigned peer, uint64_t block) const
    {
        return {local_base_ + (peer * shape_.num_blocks + block) * shape_.block_bytes, shape_.block_bytes};
    }
    nixl::span remote_block(unsigned peer, uint64_t block) const
    {
        return {peers_[peer].base + block * shape_.block_bytes, shape_.block_bytes};
    }

  private:
    void connect_to(unsigned number, remote_pool &met) const;

    pool_shape shape_;
    kv::agent agent_;
    kv::layout local_;
    uintptr_t local_base_ = 0;
    std::vector<remote_pool> peers_;
};

} // namespace bench
