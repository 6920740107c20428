// SPDX-License-Identifier: Apache-2.0
// A cache of another process in GPU memory, and one of this process: rows 4 and 17 pull from the first into the second.
#pragma once

#include "common/kv.hpp"
#include "common/moves.hpp"
#include "common/peer.hpp"
#include "common/points.hpp"
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
    uint64_t served = 0; // bytes of staging memory from which the owner serves it over NIXL; 0: not served
    uint64_t from_host = 0; // not 0: that memory is page-locked, not the GPU's
};

// The GPU of the peer's cache.
struct neighbour {
    std::string title;
    int device;
};

// Returns the GPU of this process, and the first other one whose memory it can access. If there is none, its points are
// skipped with the reason.
std::vector<neighbour> neighbours_of(int device, points &grid);

// In the peer: creates such a cache, filled with the pattern, and keeps it until the bench is done.
void serve_cache(const std::vector<std::string> &arguments);

class peer_cache {
  public:
    // The cache of this process is on `device`, the peer's on `peer_device`. The mirror is at least as large as one of
    // them.
    peer_cache(const cache_shape &shape, int device, int peer_device, const arena &mirror);

    const side &theirs() const { return *theirs_; }
    const side &ours() const { return *ours_; }

    // kvmem's read of a served cache over NIXL, by this path; 0: the path that kvmem chooses. No mapped memory is used.
    move_method by_kvmem(const std::string &name, const kv::pairs &pairs, uint32_t path) const;

    // NIXL's read of these blocks. Lists of all blocks are prepared once; a request is made, posted and polled each
    // time. Empty, with a message, if NIXL cannot register the memory.
    std::vector<move_method> by_nixl(const kv::pairs &pairs) const;

  private:
    // NIXL's agent and prepared lists of the two caches.
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
    std::unique_ptr<reference_side> reference_; // NULL if NIXL is left out
};

} // namespace bench
