// SPDX-License-Identifier: Apache-2.0
// One region, and views of it for the layouts.
#include "common/arena.hpp"

#include "common/machine.hpp"
#include "reference/cuda.hpp"

#include <algorithm>

namespace bench {
namespace {

constexpr uint64_t alignment = 512; // of a region within an arena
constexpr uint64_t largest_page = 2 << 20;

uint64_t round_up(uint64_t size, uint64_t step) { return (size + step - 1) / step * step; }

kv::region create(place where, int device, uint64_t size)
{
    if (where == place::device) {
        kvmem_device_options options{};
        options.struct_size = sizeof options;
        options.size = size;
        options.device = device;
        return kv::make<kv::region>(kvmem_region_create_device, &options);
    }
    kvmem_pinned_options options{};
    options.struct_size = sizeof options;
    options.size = size;
    options.chunk_size = size; // one page lock, because the driver rejects a copy that spans two
    options.device = device;
    return kv::make<kv::region>(kvmem_region_create_pinned, &options);
}

} // namespace

arena::arena(place where, int device, uint64_t size) : where_(where), memory_(create(where, device, size))
{
    kv::call(kvmem_region_get_info, memory_.get(), &info_);
}

kv::layout arena::build(const kvmem_layout_config &config, uint64_t &used) const
{
    kvmem_layout_requirements needed{};
    kv::call(kvmem_layout_get_requirements, &config, &needed);
    const uint64_t distance = round_up(needed.region_size, alignment);
    used = distance * needed.num_regions;
    std::vector<kv::region> views;
    std::vector<kvmem_region *> regions;
    for (uint64_t index = 0; index < needed.num_regions; ++index) {
        views.push_back(kv::make<kv::region>(kvmem_region_create_view, memory_.get(), index * distance,
                                             needed.region_size));
        regions.push_back(views.back().get());
    }
    kvmem_layout_options options{};
    options.struct_size = sizeof options;
    options.config = &config;
    options.source = KVMEM_LAYOUT_REGIONS;
    options.regions = regions.data();
    options.count = regions.size();
    return kv::make<kv::layout>(kvmem_layout_build, &options);
}

uint64_t arena_size(uint64_t wanted)
{
    size_t free = 0;
    size_t total = 0;
    cuda::check(cuda::load().memory_info(&free, &total), "cuMemGetInfo");
    const uint64_t most = std::min(free_bytes(), uint64_t{free}) / 4;
    return std::min(round_up(wanted, largest_page), most / largest_page * largest_page);
}

} // namespace bench
