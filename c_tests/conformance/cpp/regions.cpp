// SPDX-License-Identifier: Apache-2.0
// Calls of regions.
#include "calls.hpp"

#include <cstring>

namespace {

Results create_system(const Step &step, World &world) {
    const auto &name = new_name(step, world);
    kvmem::SystemOptions options;
    options.flags = flags<kvmem::SystemFlag>(step, "flags", system_flags);
    SET(options, size);
    SET(options, huge_page_size);
    options.prefault_threads = step.number32("prefault_threads");
    world.add(name, kvmem::Region::create_system(options));
    return {};
}

Results create_disk(const Step &step, World &world) {
    const auto &name = new_name(step, world);
    kvmem::DiskOptions options;
    options.flags = flags<kvmem::DiskFlag>(step, "flags", disk_flags);
    SET(options, size);
    options.path = optional_path(step, "path", world);
    options.directory = optional_path(step, "directory", world);
    world.add(name, kvmem::Region::create_disk(options));
    return {};
}

Results create_view(const Step &step, World &world) {
    const auto &name = new_name(step, world);
    const auto &parent = world.get<kvmem::Region>(step.text("region"));
    world.add(name, parent.create_view(step.number("offset"), step.number("size")));
    return {};
}

Results adopt_host(const Step &step, World &world) {
    const auto &name = new_name(step, world);
    kvmem::AdoptOptions options;
    options.flags = flags<kvmem::AdoptFlag>(step, "flags", adopt_flags);
    SET(options, size);
    const auto memory = std::make_shared<Adopted>(options.size);
    options.address = memory->address;
    options.release = [memory] { memory->release(); };
    world.add(name, kvmem::Region::adopt_host(std::move(options)));
    world.adopted[name] = memory;
    return {};
}

Results region_info(const Step &step, World &world) {
    const auto info = world.get<kvmem::Region>(step.name()).info();
    return {NUMBER(info, size),
            NUMBER(info, memory_page_size), NUMBER(info, num_extents), NUMBER(info, num_committed),
            NUMBER(info, generation),
            NUMBER(info, alignment),
            WORD(info, tier, tiers),
            WORD(info, origin, origins),
            {"flags", flags_of(info.flags.bits(), region_flags)},
            NUMBER(info, registration_count)};
}

std::byte *region_bytes(const Step &step, World &world, std::size_t size) {
    const auto bytes = world.get<kvmem::Region>(step.name()).host_bytes();
    const std::size_t offset = step.number("offset");
    if (offset + size > bytes.size()) throw Failure("the bytes are outside the region");
    return bytes.data() + offset;
}

Results write_region(const Step &step, World &world) {
    const auto bytes = parse_bytes(step.text("bytes"));
    std::memcpy(region_bytes(step, world, bytes.size()), bytes.data(), bytes.size());
    return {};
}

Results read_region(const Step &step, World &world) {
    const auto bytes = parse_bytes(step.text("bytes"));
    if (std::memcmp(region_bytes(step, world, bytes.size()), bytes.data(), bytes.size()) != 0) {
        throw Failure("the region has other bytes");
    }
    return {};
}

}  // namespace

Calls region_calls() {
    return {
        {"region_create_system", create_system},
        {"region_create_disk", create_disk},
        {"region_create_view", create_view},
        {"region_adopt_host", adopt_host},
        {"region_get_info", region_info},
        {"region_get_path", [](const Step &step, World &world) -> Results {
             return {{"path", world.shown(world.get<kvmem::Region>(step.name()).path())}};
         }},
        {"write", write_region},
        {"read", read_region},
        {"await_release", [](const Step &step, World &world) -> Results {
             const auto memory = world.adopted.find(step.name());
             if (memory == world.adopted.end()) throw Failure(step.name() + " was not adopted");
             memory->second->await_release();
             return {};
         }},
    };
}
