// SPDX-License-Identifier: Apache-2.0
// Calls of GPUs, and of regions that need the driver.
#include "calls.hpp"

namespace {

std::int32_t device(const Step &step) { return static_cast<std::int32_t>(step.number("device")); }

Results create_pinned(const Step &step, World &world) {
    const auto &name = new_name(step, world);
    kvmem::PinnedOptions options;
    options.flags = flags<kvmem::PinnedFlag>(step, "flags", pinned_flags);
    SET(options, size);
    options.device = device(step);
    world.add(name, kvmem::Region::create_pinned(options));
    return {};
}

Results create_device(const Step &step, World &world) {
    const auto &name = new_name(step, world);
    kvmem::DeviceOptions options;
    SET(options, size);
    options.device = device(step);
    world.add(name, kvmem::Region::create_device(options));
    return {};
}

Results create_elastic(const Step &step, World &world) {
    const auto &name = new_name(step, world);
    kvmem::ElasticOptions options;
    SET(options, size);
    SET(options, extent_size);
    options.device = device(step);
    world.add(name, kvmem::Region::create_elastic(options));
    return {};
}

Results cuda_info(const Step &, World &) {
    const auto info = kvmem::cuda_info();
    return {{"driver_version", number(raw(info.driver_version))}, {"device_count", number(raw(info.device_count))}};
}

Results device_info(const Step &step, World &) {
    const auto info = kvmem::device_info(device(step));
    return {NUMBER(info, total_memory), NUMBER(info, can_access), NUMBER(info, compute_capability_major),
            NUMBER(info, compute_capability_minor), NUMBER(info, multiprocessors)};
}

}  // namespace

Calls gpu_calls() {
    return {
        {"region_create_pinned", create_pinned},
        {"region_create_device", create_device},
        {"region_create_elastic", create_elastic},
        {"cuda_get_info", cuda_info},
        {"cuda_get_device_info", device_info},
    };
}
