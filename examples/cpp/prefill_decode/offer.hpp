// SPDX-License-Identifier: Apache-2.0
// How prefill's blocks become readable for decode: over NIXL, or in memory that both have mapped.
#pragma once

#include "cache.hpp"
#include "channel.hpp"
#include "deadline.hpp"
#include "move.hpp"

#include <string>

// What decode has of prefill: its cache as a layout of ours, and those of its blocks that are ours to pull.
struct Offer {
    kvmem::Layout layout;
    BlockIds blocks;
    std::string agent;  // prefill's, if NIXL reaches it; otherwise empty
};

// Prefill's side: the metadata of its agent and its layout, for NIXL.
void offer_by_nixl(const Cache &cache, kvmem::Agent &agent, Channel &decode, const Deadline &deadline);
// The memory itself, to be read and not written.
void offer_by_share(const Cache &cache, Channel &decode, const Deadline &deadline);

// Decode's side, which adds rows of what it did.
void take_by_nixl(Offer &offer, kvmem::Agent &agent, Channel &prefill, const Deadline &deadline,
                  std::string &rows);
// Memory that the CPU reaches is read in place, and checked, before anything is copied.
void take_by_share(Offer &offer, Channel &prefill, const Deadline &deadline, std::string &rows);
