// SPDX-License-Identifier: Apache-2.0
// The two processes' programs, and what they have in common.
#pragma once

#include "cache.hpp"
#include "channel.hpp"
#include "handles.hpp"
#include "options.hpp"
#include "table.hpp"

#include <initializer_list>
#include <string>
#include <string_view>

// Each returns when its part is done and checked, and throws at the first thing that is not right.
void run_prefill(const Options &options, Channel &peer, const Deadline &deadline);
void run_decode(const Options &options, Channel &peer, const Deadline &deadline);

// How both begin: a NIXL agent that reaches peers, and the process's cache on the tier that was asked for.
// Each says in its row, or rows, what it did.
kv::Agent start_agent(const char *name, Row &row);
Cache build_cache(const Options &options, std::uint32_t kind, kvmem_agent *agent, std::string &rows);

// The notification that tells prefill that its blocks have been read.
constexpr std::string_view pulled_notification = "pulled";
