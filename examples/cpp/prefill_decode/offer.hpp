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
    std::string agent;  // prefill's, where NIXL reaches it; else empty
};

// Prefill's side. Who we are and where the blocks lie, for NIXL.
void offer_by_nixl(const Cache &cache, kvmem::Agent &agent, Channel &decode, const Deadline &deadline);
// The memory itself, to be read and not written.
void offer_by_share(const Cache &cache, Channel &decode, const Deadline &deadline);

// Decode's side, which adds rows of what it did.
void take_by_nixl(Offer &offer, kvmem::Agent &agent, Channel &prefill, const Deadline &deadline,
                  std::string &rows);
// What the CPU reaches is read where it lies, and checked, before anything is copied.
void take_by_share(Offer &offer, Channel &prefill, const Deadline &deadline, std::string &rows);
