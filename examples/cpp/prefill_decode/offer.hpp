// SPDX-License-Identifier: Apache-2.0
// How prefill's blocks become readable for decode: over NIXL, or in memory that both have mapped.
#pragma once

#include "cache.hpp"
#include "channel.hpp"
#include "deadline.hpp"
#include "move.hpp"

#include <string>
#include <string_view>
#include <vector>

// The notification that tells prefill that its blocks have been read.
constexpr std::string_view pulled_notification = "pulled";

// What decode has of prefill: its cache as a layout of ours, and those of its blocks that are ours to pull.
struct Offer {
    kvmem::Layout layout;
    kvmem::Layout mapped;  // the same memory, opened once more, if it is shared; else empty
    BlockIds blocks;
    std::string agent;  // prefill's, where NIXL reaches it; else empty
    std::string rows;  // of the table: what prefill did before, and what opening its cache took
};

// Prefill's side.
void send_offer(const Options &options, const Cache &cache, kvmem::Agent &agent, const BlockIds &blocks,
                const std::string &rows, Channel &decode, const Deadline &deadline);
// Returns when each of the peers has read its blocks.
void wait_until_pulled(const Options &options, kvmem::Agent &agent, const std::vector<Channel *> &decode,
                       const Deadline &deadline);

// Decode's side.
Offer receive_offer(const Options &options, kvmem::Agent &agent, Channel &prefill, const Deadline &deadline);
// Says that all blocks were read, unless the notification of a transfer has said so.
void report_pulled(const Options &options, Channel &prefill, const Deadline &deadline);
// Releases prefill's cache and its agent.
void release_offer(Offer &offer, kvmem::Agent &agent);
