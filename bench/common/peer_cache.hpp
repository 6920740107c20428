// SPDX-License-Identifier: Apache-2.0
// Another process's cache in memory of a GPU, opened here beside one of our own: row 4 pulls from the one into
// the other.
#pragma once

#include "common/kv.hpp"
#include "common/moves.hpp"
#include "common/peer.hpp"
#include "common/side.hpp"
#include "reference/nixl.hpp"

#include <memory>
#include <string>
#include <vector>

namespace bench {

struct cache_shape {
    uint64_t block_bytes;
    uint64_t num_blocks;
    uint64_t elastic; // VMM memory, shared by file descriptors; 0: plain memory, shared by its IPC handle
    uint64_t served = 0; // its owner serves it over NIXL, from staging memory of so many bytes
};

// In the peer: holds such a cache, filled with the pattern, until the bench is done with it.
void serve_cache(const std::vector<std::string> &arguments);

class peer_cache {
  public:
    // Ours lies on `device`, the peer's on `peer_device`; the mirror is at least as large as one of them.
    peer_cache(const cache_shape &shape, int device, int peer_device, const arena &mirror);

    const side &theirs() const { return *theirs_; }
    const side &ours() const { return *ours_; }

    // kvmem's read of a served cache over NIXL, by this path; 0: as it chooses. No mapped memory is used.
    move_way by_kvmem(const std::string &name, const kv::pairs &pairs, uint32_t path) const;

    // NIXL's read of these blocks: lists of all blocks prepared once, a request made, posted and polled each
    // time. No way where NIXL does not take the memory, which is told.
    std::vector<move_way> by_nixl(const kv::pairs &pairs) const;

  private:
    // What NIXL knows of the two caches.
    struct reference_side {
        nixl::agent agent{"reference-reader"};
        std::unique_ptr<nixl::prepared> local;
        std::unique_ptr<nixl::prepared> remote;
    };

    std::unique_ptr<reference_side> introduce(int device, int peer_device, uint64_t their_base,
                                              const nixl::bytes &their_metadata) const;

    peer peer_;
    cache_shape shape_;
    kv::agent agent_;
    kv::layout remote_;
    std::unique_ptr<side> ours_;
    std::unique_ptr<side> theirs_;
    std::unique_ptr<reference_side> reference_; // NULL where it is left out
};

} // namespace bench
