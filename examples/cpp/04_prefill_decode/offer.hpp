// SPDX-License-Identifier: Apache-2.0
// Makes prefill's blocks readable for decode: over NIXL, or in memory that both have mapped.
#pragma once

#include "cache.hpp"
#include "channel.hpp"
#include "deadline.hpp"
#include "move.hpp"

#include <string>
#include <string_view>
#include <vector>

// The notification to prefill that its blocks have been read.
constexpr std::string_view pulled_notification = "pulled";

// Prefill's cache as a layout in decode, and the blocks that decode can pull.
struct Offer {
    kvmem::Layout layout;
    kvmem::Layout mapped;  // the same memory, opened a second time, if it is shared; otherwise empty
    BlockIds blocks;
    std::string agent;  // the name of prefill's agent, if NIXL is used; otherwise empty
    std::string rows;  // of the table: prefill's steps before, and opening its cache
};

// Prefill's side.
void send_offer(const Options &options, const Cache &cache, kvmem::Agent &agent, const BlockIds &blocks,
                const std::string &rows, Channel &decode, const Deadline &deadline);
// Waits until each of the peers has read its blocks.
void wait_until_pulled(const Options &options, kvmem::Agent &agent, const std::vector<Channel *> &decode,
                       const Deadline &deadline);

// Decode's side.
Offer receive_offer(const Options &options, kvmem::Agent &agent, Channel &prefill, const Deadline &deadline);
// Notifies prefill that all blocks were read, unless a transfer has done so.
void report_pulled(const Options &options, Channel &prefill, const Deadline &deadline);
// Releases prefill's cache and its agent.
void release_offer(Offer &offer, kvmem::Agent &agent);
