// SPDX-License-Identifier: Apache-2.0
// The table of tiers, and the functions that build a cache on each.
#include "tier.hpp"

#include "options.hpp"

#include <algorithm>
#include <thread>

namespace {

kvmem::Layout build_on_system(const kvmem::LayoutConfig &config, const Users &users) {
    kvmem::SystemOptions memory;
    if (users.shareable) memory.flags = kvmem::SystemFlag::shareable;
    // A cache is used for hours, so its pages are allocated now and not in the first transfers.
    memory.prefault_threads = std::max(1u, std::thread::hardware_concurrency());
    return kvmem::Layout::build(config, memory, users.agent);
}

kvmem::Layout build_on_device(const kvmem::LayoutConfig &config, const Users &users) {
    kvmem::DeviceOptions memory;
    memory.device = users.device;
    return kvmem::Layout::build(config, memory, users.agent);
}

kvmem::Layout build_on_elastic(const kvmem::LayoutConfig &config, const Users &users) {
    kvmem::ElasticOptions memory;
    memory.device = users.device;
    auto layout = kvmem::Layout::build(config, memory, users.agent);
    // An engine commits memory for the blocks that have tokens; in this program all have.
    layout.resize(config.num_blocks);
    return layout;
}

const Tier tiers[] = {
    {"system", false, false, build_on_system},
    {"pinned", true, false, build_on_pinned},
    {"device", true, true, build_on_device},
    {"elastic", true, true, build_on_elastic},
};

}  // namespace

kvmem::Layout build_on_pinned(const kvmem::LayoutConfig &config, const Users &users) {
    kvmem::PinnedOptions memory;
    memory.device = users.device;
    if (users.shareable) memory.flags |= kvmem::PinnedFlag::shareable;
    return kvmem::Layout::build(config, memory, users.agent);
}

const Tier &find_tier(std::string_view name) {
    for (const Tier &tier : tiers) {
        if (tier.name == name) return tier;
    }
    throw UsageError("there is no tier '" + std::string(name) + "'; tiers: " + tier_names());
}

std::string tier_names() {
    std::string names;
    for (const Tier &tier : tiers) {
        if (!names.empty()) names += ", ";
        names += tier.name;
    }
    return names;
}
