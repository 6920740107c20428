// SPDX-License-Identifier: Apache-2.0
// The tiers of a cache. A new tier is a row of the table in tier.cpp.
#pragma once

#include <cstdint>
#include <kvmem.hpp>
#include <string>
#include <string_view>

// The users of a cache's memory.
struct Users {
    std::int32_t device;  // the GPU that has the memory, or copies from and to it
    const kvmem::Agent *agent;  // the agent that it is registered with; NULL: none
    bool shareable;  // can be shared with other processes; GPU memory always can
};

struct Tier {
    std::string_view name;
    bool needs_gpu;
    bool on_gpu;
    // Allocates the cache's memory, registers it with the agent, and builds the layout.
    kvmem::Layout (*build)(const kvmem::LayoutConfig &config, const Users &users);
};

// Throws UsageError with the list of tiers if the name is unknown.
const Tier &find_tier(std::string_view name);
std::string tier_names();

// Host memory that the GPU copies from and to, also for caches of other tiers.
kvmem::Layout build_on_pinned(const kvmem::LayoutConfig &config, const Users &users);
