// SPDX-License-Identifier: Apache-2.0
// The table of tiers, and how a cache is built on each.
#include "tier.hpp"

#include "options.hpp"

#include <algorithm>
#include <thread>

namespace {

kvmem_layout_options allocate(const kvmem_layout_config &config, const Users &users) {
    auto options = kv::defaults(kvmem_layout_options_init);
    options.config = &config;
    options.agent = users.agent;
    options.source = KVMEM_LAYOUT_ALLOCATE;
    return options;
}

kv::Layout build_on_system(const kvmem_layout_config &config, const Users &users) {
    auto memory = kv::defaults(kvmem_system_options_init);
    memory.flags = KVMEM_SYSTEM_TRANSPARENT_HUGE_PAGES;
    if (users.shareable) memory.flags |= KVMEM_SYSTEM_SHAREABLE;
    // A cache serves for hours: its pages come now, not within the first transfers.
    memory.prefault_threads = std::max(1u, std::thread::hardware_concurrency());
    auto options = allocate(config, users);
    options.system = &memory;
    return kv::make<kv::Layout>(kvmem_layout_build, &options);
}

kv::Layout build_on_device(const kvmem_layout_config &config, const Users &users) {
    auto memory = kv::defaults(kvmem_device_options_init);
    memory.device = users.device;
    auto options = allocate(config, users);
    options.device = &memory;
    return kv::make<kv::Layout>(kvmem_layout_build, &options);
}

kv::Layout build_on_elastic(const kvmem_layout_config &config, const Users &users) {
    auto memory = kv::defaults(kvmem_elastic_options_init);
    memory.device = users.device;
    auto options = allocate(config, users);
    options.elastic = &memory;
    auto layout = kv::make<kv::Layout>(kvmem_layout_build, &options);
    // An engine gives memory to the blocks it has tokens for; here that is all of them.
    kv::call(kvmem_layout_resize, layout.get(), config.num_blocks);
    return layout;
}

const Tier tiers[] = {
    {"system", false, false, build_on_system},
    {"pinned", true, false, build_on_pinned},
    {"device", true, true, build_on_device},
    {"elastic", true, true, build_on_elastic},
};

}  // namespace

kv::Layout build_on_pinned(const kvmem_layout_config &config, const Users &users) {
    auto memory = kv::defaults(kvmem_pinned_options_init);
    memory.device = users.device;
    if (users.shareable) memory.flags |= KVMEM_PINNED_SHAREABLE;
    auto options = allocate(config, users);
    options.pinned = &memory;
    return kv::make<kv::Layout>(kvmem_layout_build, &options);
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
