// SPDX-License-Identifier: Apache-2.0
// The main functions of the processes, and their common parts.
#pragma once

#include "cache.hpp"
#include "channel.hpp"
#include "options.hpp"
#include "table.hpp"

#include <deque>
#include <string>

// Each returns when its part is done and checked, and throws at the first error.
void run_prefill(const Options &options, Channel &peer, const Deadline &deadline);
void run_decode(const Options &options, Channel &peer, const Deadline &deadline);

// With --reshard: one rank of a side, with a channel to each rank of the other side.
void run_prefill_rank(const Options &options, std::deque<Channel> &decode, const Deadline &deadline);
void run_decode_rank(const Options &options, std::deque<Channel> &prefill, const Deadline &deadline);

// The first steps of both: a NIXL agent that can access peers, and the process's cache on the chosen tier. Each adds
// its rows.
kvmem::Agent start_agent(const std::string &process, std::string &rows);

struct Part {
    std::string process;
    kvmem::LayoutConfig config;
    const kvmem::Agent &agent;  // empty: none
    bool shared;  // with the other process
};

Cache build_cache(const Options &options, const Part &part, std::string &rows);
