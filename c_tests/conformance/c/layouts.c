/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of layouts. */
#include "calls.h"

#include <stdio.h>
#include <string.h>

static kvmem_layout *layout_of(struct step *step)
{
    return object(step_name(step), LAYOUT);
}

static void read_shape(struct step *step, kvmem_layout_config *config)
{
    *config = (kvmem_layout_config){.struct_size = sizeof(*config)};
    SET_SHAPE(*config);
    config->order = has(step, "order") ? text_of(step, "order") : NULL;
    config->identity = has(step, "identity") ? text_of(step, "identity") : NULL;
    config->identity_size = config->identity ? strlen(config->identity) : 0;
}

static kvmem_status layout_requirements(struct step *step, kvmem_error **error)
{
    kvmem_layout_config config;
    kvmem_layout_requirements needs;
    read_shape(step, &config);
    const kvmem_status status = kvmem_layout_get_requirements(&config, &needs, error);
    if (status < 0) return status;
    NUMBER(needs, num_regions);
    NUMBER(needs, region_size);
    NUMBER(needs, total_size);
    NUMBER(needs, allocation_size);
    return status;
}

/* Options of all tiers; `memory` selects which are used. */
struct memory {
    kvmem_system_options system;
    kvmem_disk_options disk;
    kvmem_pinned_options pinned;
    kvmem_device_options device;
    kvmem_elastic_options elastic;
    char paths[2][512];
};

static void read_memory(struct step *step, struct memory *memory, kvmem_layout_options *options)
{
    const uint64_t tier = word_value(step, "memory", tiers);
    memory->system = (kvmem_system_options){.struct_size = sizeof(memory->system)};
    memory->disk = (kvmem_disk_options){.struct_size = sizeof(memory->disk)};
    memory->pinned = (kvmem_pinned_options){.struct_size = sizeof(memory->pinned)};
    memory->device = (kvmem_device_options){.struct_size = sizeof(memory->device)};
    memory->elastic = (kvmem_elastic_options){.struct_size = sizeof(memory->elastic)};
    memory->system.flags = flags_value(step, "system_flags", system_flags);
    memory->disk.flags = flags_value(step, "disk_flags", disk_flags);
    set_paths(step, &memory->disk, memory->paths);
    memory->pinned.device = memory->device.device = memory->elastic.device = (int32_t)number_of(step,
                                                                                                "device");
    if (tier == KVMEM_TIER_SYSTEM) options->system = &memory->system;
    if (tier == KVMEM_TIER_DISK) options->disk = &memory->disk;
    if (tier == KVMEM_TIER_PINNED) options->pinned = &memory->pinned;
    if (tier == KVMEM_TIER_DEVICE) options->device = &memory->device;
    if (tier == KVMEM_TIER_ELASTIC) options->elastic = &memory->elastic;
}

static kvmem_status layout_build(struct step *step, union handle *made, kvmem_error **error)
{
    char *names[MAX_LIST];
    struct memory memory;
    kvmem_region *regions[MAX_LIST];
    kvmem_registration *registrations[MAX_LIST];
    kvmem_layout_config config;
    kvmem_layout_options options = {.struct_size = sizeof(options)};
    read_shape(step, &config);
    options.config = &config;
    if (has(step, "agent")) options.agent = object(text_of(step, "agent"), AGENT);
    if (has(step, "regions")) {
        options.source = KVMEM_LAYOUT_REGIONS;
        options.count = list_of(step, "regions", names);
        for (size_t i = 0; i < options.count; i++) regions[i] = object(names[i], REGION);
        options.regions = regions;
    } else if (has(step, "registrations")) {
        options.source = KVMEM_LAYOUT_REGISTRATIONS;
        options.count = list_of(step, "registrations", names);
        for (size_t i = 0; i < options.count; i++) registrations[i] = object(names[i], REGISTRATION);
        options.registrations = registrations;
    } else {
        options.source = KVMEM_LAYOUT_ALLOCATE;
        read_memory(step, &memory, &options);
    }
    return kvmem_layout_build(&options, &made->layout, error);
}

static kvmem_status layout_combine(struct step *step, union handle *made, kvmem_error **error)
{
    char *items[MAX_LIST];
    kvmem_layout_part parts[MAX_LIST];
    const size_t count = list_of(step, "parts", items);
    for (size_t i = 0; i < count; i++) {
        char *colon = strchr(items[i], ':');
        if (!colon) fail("'%s' is not a part", items[i]);
        *colon = '\0';
        parts[i] = (kvmem_layout_part){items[i], object(colon + 1, LAYOUT)};
    }
    return kvmem_layout_combine(parts, count, &made->layout, error);
}

static kvmem_status layout_part(struct step *step, union handle *made, kvmem_error **error)
{
    return kvmem_layout_get_part(object(text_of(step, "layout"), LAYOUT), text_of(step, "name"),
                                 &made->layout, error);
}

static kvmem_status layout_info(struct step *step, kvmem_error **error)
{
    kvmem_layout_info info;
    const kvmem_status status = kvmem_layout_get_info(layout_of(step), &info, error);
    if (status < 0) return status;
    NUMBER(info, num_blocks);
    NUMBER(info, num_layers);
    NUMBER(info, outer_dim);
    NUMBER(info, page_size);
    NUMBER(info, inner_dim);
    NUMBER(info, dtype_width);
    NUMBER(info, alignment);
    NUMBER(info, num_heads);
    NUMBER(info, num_regions);
    NUMBER(info, num_parts);
    WORD(info, tier, tiers);
    WORD(info, locality, localities);
    WORD(info, memory_type, memory_types);
    add_text(step, "order", info.order);
    NUMBER(info, block_stride);
    NUMBER(info, layer_stride);
    NUMBER(info, outer_stride);
    NUMBER(info, token_stride);
    NUMBER(info, head_stride);
    NUMBER(info, element_stride);
    char identity[128];
    snprintf(identity, sizeof(identity), "%.*s", (int)info.identity_size,
             info.identity ? (const char *)info.identity : "");
    add_text(step, "identity", identity);
    NUMBER(info, layer_step);
    NUMBER(info, outer_step);
    NUMBER(info, token_step);
    NUMBER(info, head_step);
    NUMBER(info, piece_size);
    NUMBER(info, row_size);
    add_text(step, "agent", info.agent ? info.agent : "");
    add_text(step, "part_names", "");
    for (uint32_t i = 0; i < info.num_parts; i++) append_item(step, info.part_names[i]);
    return status;
}

static kvmem_status located(struct step *step, const kvmem_block *range, kvmem_status status)
{
    kvmem_layout_info info;
    if (status < 0) return status;
    if (kvmem_layout_get_info(layout_of(step), &info, NULL) < 0) fail("the layout has no info");
    add_number(step, "offset", range->address - info.bases[0]);
    add_number(step, "size", range->size);
    return status;
}

static kvmem_status layout_block(struct step *step, kvmem_error **error)
{
    kvmem_block range;
    return located(step, &range,
        kvmem_layout_get_block(layout_of(step), (uint32_t)number_of(step, "block"), number_of(step, "layer"),
            number_of(step, "outer"), &range, error));
}

static kvmem_status layout_row(struct step *step, kvmem_error **error)
{
    kvmem_block range;
    return located(step, &range,
        kvmem_layout_get_row(layout_of(step), (uint32_t)number_of(step, "block"), number_of(step, "layer"),
            number_of(step, "outer"), number_of(step, "token"), number_of(step, "head"), &range, error));
}

static kvmem_status layout_region(struct step *step, union handle *made, kvmem_error **error)
{
    return kvmem_layout_get_region(object(text_of(step, "layout"), LAYOUT),
        (size_t)number_of(step, "index"), &made->region, error);
}

static kvmem_status put_checksums(struct step *step, const uint32_t *checksums, size_t count,
    kvmem_status status)
{
    if (status < 0) return status;
    add_text(step, "checksums", "");
    for (size_t i = 0; i < count; i++) append_number(step, checksums[i]);
    return status;
}

static kvmem_status layout_checksum(struct step *step, kvmem_error **error)
{
    uint32_t blocks[MAX_LIST], checksums[MAX_LIST];
    const size_t count = ids_of(step, "blocks", blocks);
    return put_checksums(step, checksums, count,
        kvmem_layout_checksum(layout_of(step), blocks, count,
            number_or(step, "timeout_ns", KVMEM_TIMEOUT_FOREVER), checksums, error));
}

static kvmem_status layout_create_epochs(struct step *step, kvmem_error **error)
{
    kvmem_region *table = has(step, "table") ? object(text_of(step, "table"), REGION) : NULL;
    return kvmem_layout_create_epochs(layout_of(step), table, error);
}

static kvmem_status layout_get_accesses(struct step *step, kvmem_error **error)
{
    uint32_t blocks[MAX_LIST];
    size_t found = 0;
    const size_t count = ids_of(step, "blocks", blocks);
    const kvmem_status status =
        kvmem_layout_get_accesses(layout_of(step), blocks, count, NULL, 0, &found, error);
    if (status == KVMEM_STATUS_OK) add_number(step, "count", found);
    return status;
}

static kvmem_status layout_serve(struct step *step, kvmem_error **error)
{
    kvmem_serve_options options = {.struct_size = sizeof options};
    options.staging_size = number_of(step, "staging_size");
    options.max_lease_ns = number_of(step, "max_lease_ns");
    return kvmem_layout_serve(layout_of(step), &options, error);
}

static kvmem_status lease_create(struct step *step, union handle *made, kvmem_error **error)
{
    uint32_t blocks[MAX_LIST];
    const size_t count = ids_of(step, "blocks", blocks);
    kvmem_lease_options options = {.struct_size = sizeof options};
    options.flags = flags_value(step, "flags", lease_flags);
    options.duration_ns = number_of(step, "duration_ns");
    options.timeout_ns = number_of(step, "timeout_ns");
    return kvmem_lease_create(object(text_of(step, "layout"), LAYOUT), blocks, count, &options, &made->lease,
                              error);
}

static kvmem_status lease_remaining(struct step *step, kvmem_error **error)
{
    uint64_t remaining = 0;
    const kvmem_status status = kvmem_lease_get_remaining(object(step_name(step), LEASE), &remaining, error);
    if (status == KVMEM_STATUS_OK) add_number(step, "remaining_ns", remaining);
    return status;
}

const struct call layout_calls[] = {
    {"layout_get_requirements", .run = layout_requirements},
    {"layout_build", .create = layout_build, .type = LAYOUT},
    {"layout_combine", .create = layout_combine, .type = LAYOUT},
    {"layout_get_part", .create = layout_part, .type = LAYOUT},
    {"layout_get_info", .run = layout_info},
    {"layout_get_block", .run = layout_block},
    {"layout_get_row", .run = layout_row},
    {"layout_get_region", .create = layout_region, .type = REGION},
    {"layout_checksum", .run = layout_checksum},
    {"layout_create_epochs", .run = layout_create_epochs},
    {"layout_get_accesses", .run = layout_get_accesses},
    {"layout_serve", .run = layout_serve},
    {"lease_create", .create = lease_create, .type = LEASE},
    {"lease_get_remaining", .run = lease_remaining},
    {.name = NULL},
};
