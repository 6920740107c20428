// SPDX-License-Identifier: Apache-2.0
// Calls of layouts.
#include "calls.hpp"

namespace {

kvmem::LayoutConfig shape(const Step &step) {
    kvmem::LayoutConfig config;
    SET_SHAPE(config);
    if (step.has("order")) config.order = step.text("order");
    if (step.has("identity")) config.identity = step.text("identity");
    return config;
}

Results requirements(const Step &step, World &) {
    const auto needs = kvmem::layout_requirements(shape(step));
    return {NUMBER(needs, num_regions), NUMBER(needs, region_size),
            NUMBER(needs, total_size), NUMBER(needs, allocation_size)};
}

// Registrations of the case, which still owns them.
struct Borrowed {
    std::vector<kvmem::Registration> list;

    Borrowed() = default;
    Borrowed(const Borrowed &) = delete;
    Borrowed &operator=(const Borrowed &) = delete;
    ~Borrowed() {
        for (auto &one : list) static_cast<void>(one.release());
    }
};

template <typename Memory>
kvmem::Layout build_on_device(const Step &step, const kvmem::LayoutConfig &config, const kvmem::Agent *agent) {
    Memory options;
    options.device = static_cast<std::int32_t>(step.number("device"));
    return kvmem::Layout::build(config, options, agent);
}

kvmem::Layout build_on(const Step &step, World &world) {
    const auto config = shape(step);
    const kvmem::Agent *const agent = step.has("agent") ? &world.get<kvmem::Agent>(step.text("agent")) : nullptr;
    if (step.has("registrations")) {
        Borrowed registrations;
        for (const std::string &name : step.list("registrations")) {
            registrations.list.emplace_back(world.get<kvmem::Registration>(name).get());
        }
        return kvmem::Layout::build(config, registrations.list);
    }
    if (step.has("regions")) {
        // Other handles to the same regions, so that those of the case keep theirs.
        std::vector<kvmem::Region> regions;
        for (const std::string &name : step.list("regions")) {
            const auto &region = world.get<kvmem::Region>(name);
            regions.push_back(region.create_view(0, region.info().size));
        }
        return kvmem::Layout::build(config, regions, agent);
    }
    switch (static_cast<kvmem::Tier>(step.word("memory", tiers))) {
    case kvmem::Tier::disk: {
        kvmem::DiskOptions options;
        options.flags = flags<kvmem::DiskFlag>(step, "disk_flags", disk_flags);
        options.path = optional_path(step, "path", world);
        return kvmem::Layout::build(config, options, agent);
    }
    case kvmem::Tier::pinned: return build_on_device<kvmem::PinnedOptions>(step, config, agent);
    case kvmem::Tier::device: return build_on_device<kvmem::DeviceOptions>(step, config, agent);
    case kvmem::Tier::elastic: return build_on_device<kvmem::ElasticOptions>(step, config, agent);
    default: {
        kvmem::SystemOptions options;
        options.flags = flags<kvmem::SystemFlag>(step, "system_flags", system_flags);
        return kvmem::Layout::build(config, options, agent);
    }
    }
}

Results build(const Step &step, World &world) {
    const auto &name = new_name(step, world);
    world.add(name, build_on(step, world));
    return {};
}

Results combine(const Step &step, World &world) {
    const auto &name = new_name(step, world);
    std::vector<kvmem::LayoutPart> parts;
    for (const std::string &item : step.list("parts")) {
        const auto [part, layout] = split_pair(item);
        parts.push_back({part, &world.get<kvmem::Layout>(layout)});
    }
    world.add(name, kvmem::Layout::combine(parts));
    return {};
}

Results get_part(const Step &step, World &world) {
    const auto &name = new_name(step, world);
    world.add(name, world.get<kvmem::Layout>(step.text("layout")).part(step.text("name")));
    return {};
}

Results layout_info(const Step &step, World &world) {
    const auto info = world.get<kvmem::Layout>(step.name()).info();
    return {NUMBER(info, num_blocks), NUMBER(info, num_layers),
            NUMBER(info, outer_dim), NUMBER(info, page_size),
            NUMBER(info, inner_dim), NUMBER(info, dtype_width),
            NUMBER(info, alignment), NUMBER(info, num_heads),
            NUMBER(info, num_regions), NUMBER(info, num_parts),
            WORD(info, tier, tiers),
            WORD(info, locality, localities),
            WORD(info, memory_type, memory_types), {"order", info.order},
            {"identity", info.identity},
            NUMBER(info, block_stride), NUMBER(info, layer_stride),
            NUMBER(info, outer_stride), NUMBER(info, token_stride),
            NUMBER(info, head_stride), NUMBER(info, element_stride),
            NUMBER(info, layer_step), NUMBER(info, outer_step),
            NUMBER(info, token_step), NUMBER(info, head_step),
            NUMBER(info, piece_size), NUMBER(info, row_size),
            {"agent", info.agent}, {"part_names", joined(info.part_names)}};
}

Results located(const kvmem::Layout &layout, const kvmem::BlockRange &range) {
    return {{"offset", number(range.address - layout.info().bases[0])}, NUMBER(range, size)};
}

Results get_block(const Step &step, World &world) {
    const auto &layout = world.get<kvmem::Layout>(step.name());
    return located(layout, layout.block(step.number32("block"), step.number("layer"), step.number("outer")));
}

Results get_row(const Step &step, World &world) {
    const auto &layout = world.get<kvmem::Layout>(step.name());
    return located(layout, layout.row(step.number32("block"), step.number("layer"), step.number("outer"),
                                      step.number("token"), step.number("head")));
}

Results get_region(const Step &step, World &world) {
    const auto &name = new_name(step, world);
    world.add(name, world.get<kvmem::Layout>(step.text("layout")).region(step.number("index")));
    return {};
}

Results checksum(const Step &step, World &world) {
    return {{"checksums", joined(world.get<kvmem::Layout>(step.name()).checksum(ids(step, "blocks"), timeout(step)))}};
}

Results create_epochs(const Step &step, World &world) {
    auto &layout = world.get<kvmem::Layout>(step.name());
    if (step.has("table")) {
        layout.create_epochs(world.get<kvmem::Region>(step.text("table")));
    } else {
        layout.create_epochs();
    }
    return {};
}

Results lease(const Step &step, World &world) {
    const auto &name = new_name(step, world);
    kvmem::LeaseOptions options;
    options.flags = flags<kvmem::LeaseFlag>(step, "flags", lease_flags);
    options.duration = std::chrono::nanoseconds(step.number("duration_ns"));
    options.timeout = std::chrono::nanoseconds(step.number("timeout_ns"));
    world.add(name, world.get<kvmem::Layout>(step.text("layout")).lease(ids(step, "blocks"), options));
    return {};
}

}  // namespace

Calls layout_calls() {
    return {
        {"layout_get_requirements", requirements},
        {"layout_build", build},
        {"layout_combine", combine},
        {"layout_get_part", get_part},
        {"layout_get_info", layout_info},
        {"layout_get_block", get_block},
        {"layout_get_row", get_row},
        {"layout_get_region", get_region},
        {"layout_checksum", checksum},
        {"layout_create_epochs", create_epochs},
        {"layout_get_accesses", [](const Step &step, World &world) -> Results {
             const auto accesses = world.get<kvmem::Layout>(step.name()).accesses(ids(step, "blocks"));
             return {{"count", std::to_string(accesses.size())}};
         }},
        {"layout_serve", [](const Step &step, World &world) -> Results {
             kvmem::ServeOptions options;
             options.staging_size = step.number("staging_size");
             options.max_lease = std::chrono::nanoseconds(step.number("max_lease_ns"));
             world.get<kvmem::Layout>(step.name()).serve(options);
             return {};
         }},
        {"lease_create", lease},
        {"lease_renew", [](const Step &step, World &world) -> Results {
             world.get<kvmem::Lease>(step.name()).renew(std::chrono::nanoseconds(step.number("duration_ns")));
             return {};
         }},
        {"lease_get_remaining", [](const Step &step, World &world) -> Results {
             const auto remaining = world.get<kvmem::Lease>(step.name()).remaining();
             return {{"remaining_ns", number(remaining ? static_cast<std::uint64_t>(remaining->count()) : UINT64_MAX)}};
         }},
    };
}
