// SPDX-License-Identifier: Apache-2.0
// The two processes' programs, and what they have in common.
#pragma once

#include "cache.hpp"
#include "channel.hpp"
#include "options.hpp"
#include "table.hpp"

#include <string>
#include <string_view>
#include <vector>

// Each returns when its part is done and checked, and throws at the first thing that is not right.
void run_prefill(const Options &options, Channel &peer, const Deadline &deadline);
void run_decode(const Options &options, Channel &peer, const Deadline &deadline);

// How both begin: a NIXL agent that reaches peers, and the process's cache on the tier that was asked for.
// Each adds to the rows what it did.
kvmem::Agent start_agent(const char *process, std::string &rows);

struct Part {
    const char *process;
    kvmem::LayoutKind kind;
    const kvmem::Agent &agent;  // empty: none
    bool shared;  // with the other process
};

Cache build_cache(const Options &options, const Part &part, std::string &rows);

// The notification that tells prefill that its blocks have been read.
constexpr std::string_view pulled_notification = "pulled";
