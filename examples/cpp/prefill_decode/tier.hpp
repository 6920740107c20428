// SPDX-License-Identifier: Apache-2.0
// The tiers a cache may live on. A new tier is one more row of the table in tier.cpp.
#pragma once

#include <cstdint>
#include <kvmem.hpp>
#include <string>
#include <string_view>

// What uses the memory of a cache.
struct Users {
    std::int32_t device;  // the GPU that it is on or serves
    const kvmem::Agent *agent;  // the agent that it is registered with; NULL: none
    bool shareable;  // other processes can be given it; GPU memory always can
};

struct Tier {
    std::string_view name;
    bool needs_gpu;
    bool on_gpu;
    // Allocates the cache's memory, registers it with the agent, and lays the blocks out in it.
    kvmem::Layout (*build)(const kvmem::LayoutConfig &config, const Users &users);
};

// Throws UsageError with the list of tiers when there is none of that name.
const Tier &find_tier(std::string_view name);
std::string tier_names();

// Host memory that the GPU copies from and to, also for caches of other tiers.
kvmem::Layout build_on_pinned(const kvmem::LayoutConfig &config, const Users &users);
