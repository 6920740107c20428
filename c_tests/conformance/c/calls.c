/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of regions and layouts, and the list of all calls. */
#include "calls.h"
#include "words.h"

#include <stdlib.h>
#include <string.h>

typedef kvmem_status call(struct step *step, kvmem_error **error);

static kvmem_region *region_of(struct step *step)
{
    return object(step_name(step), REGION);
}

static kvmem_layout *layout_of(struct step *step)
{
    return object(step_name(step), LAYOUT);
}

static kvmem_status status_name(struct step *step, kvmem_error **error)
{
    (void)error;
    add_text(step, "name", kvmem_status_name((kvmem_status)number_of(step, "value")) + strlen("KVMEM_STATUS_"));
    return KVMEM_STATUS_OK;
}

/* ---- regions ---- */

static kvmem_status create_system(struct step *step, kvmem_error **error)
{
    const char *name = new_name(step);
    kvmem_region *region = NULL;
    kvmem_system_options options;
    kvmem_system_options_init(&options, sizeof options);
    options.flags = flags_value(step, "flags", system_flags);
    options.size = number_of(step, "size");
    options.huge_page_size = number_of(step, "huge_page_size");
    options.prefault_threads = (uint32_t)number_of(step, "prefault_threads");
    const kvmem_status status = kvmem_region_create_system(&options, &region, error);
    return add_object(name, REGION, region, status);
}

/* path_of has one buffer, and a file has up to two paths. */
static void set_paths(struct step *step, kvmem_disk_options *options, char paths[2][512])
{
    if (has(step, "path")) options->path = strcpy(paths[0], path_of(text_of(step, "path")));
    if (has(step, "directory")) options->directory = strcpy(paths[1], path_of(text_of(step, "directory")));
}

static kvmem_status create_disk(struct step *step, kvmem_error **error)
{
    const char *name = new_name(step);
    char paths[2][512];
    kvmem_region *region = NULL;
    kvmem_disk_options options;
    kvmem_disk_options_init(&options, sizeof options);
    options.flags = flags_value(step, "flags", disk_flags);
    options.size = number_of(step, "size");
    set_paths(step, &options, paths);
    const kvmem_status status = kvmem_region_create_disk(&options, &region, error);
    return add_object(name, REGION, region, status);
}

static kvmem_status create_view(struct step *step, kvmem_error **error)
{
    const char *name = new_name(step);
    const kvmem_region *parent = object(text_of(step, "region"), REGION);
    kvmem_region *view = NULL;
    const kvmem_status status =
        kvmem_region_create_view(parent, number_of(step, "offset"), number_of(step, "size"), &view, error);
    return add_object(name, REGION, view, status);
}

static kvmem_status adopt_host(struct step *step, kvmem_error **error)
{
    const char *name = new_name(step);
    kvmem_region *region = NULL;
    kvmem_adopt_options options;
    kvmem_adopt_options_init(&options, sizeof options);
    options.flags = flags_value(step, "flags", adopt_flags);
    options.size = number_of(step, "size");
    options.address = adopt_memory(name, options.size, &options.user_data);
    options.release = released;
    const kvmem_status status = kvmem_region_adopt_host(&options, &region, error);
    if (status < 0) forget_memory(name);
    return add_object(name, REGION, region, status);
}

static kvmem_status region_info(struct step *step, kvmem_error **error)
{
    kvmem_region_info info;
    const kvmem_status status = kvmem_region_get_info(region_of(step), &info, error);
    if (status < 0) return status;
    add_number(step, "size", info.size);
    add_number(step, "page_size", info.page_size);
    add_number(step, "alignment", info.alignment);
    add_word(step, "tier", info.tier, tiers);
    add_word(step, "origin", info.origin, origins);
    add_flags(step, "flags", info.flags, region_flags);
    add_number(step, "registration_count", info.registration_count);
    return status;
}

static kvmem_status region_path(struct step *step, kvmem_error **error)
{
    kvmem_blob *path;
    const kvmem_status status = kvmem_region_get_path(region_of(step), &path, error);
    if (status < 0) return status;
    add_text(step, "path", shown_path(kvmem_blob_data(path)));
    kvmem_blob_destroy(path);
    return status;
}

static kvmem_status region_holders(struct step *step, kvmem_error **error)
{
    kvmem_region_holders holders;
    const kvmem_status status = kvmem_region_get_holders(region_of(step), &holders, error);
    if (status < 0) return status;
    add_number(step, "references", holders.references);
    add_number(step, "views", holders.views);
    add_number(step, "registrations", holders.registrations);
    add_number(step, "shares", holders.shares);
    add_number(step, "importers", holders.importers);
    add_number(step, "handles", holders.handles);
    return status;
}

static kvmem_status region_residency(struct step *step, kvmem_error **error)
{
    kvmem_region_residency residency;
    return kvmem_region_get_residency(region_of(step), &residency, error);
}

static kvmem_status region_sync(struct step *step, kvmem_error **error)
{
    return kvmem_region_sync(region_of(step), error);
}

static kvmem_status region_check_owner(struct step *step, kvmem_error **error)
{
    return kvmem_region_check_owner(region_of(step), error);
}

static kvmem_status region_commit(struct step *step, kvmem_error **error)
{
    return kvmem_region_commit(region_of(step), number_of(step, "offset"), number_of(step, "size"), error);
}

static kvmem_status region_decommit(struct step *step, kvmem_error **error)
{
    return kvmem_region_decommit(region_of(step), number_of(step, "offset"), number_of(step, "size"), error);
}

static unsigned char *region_bytes(struct step *step, size_t size)
{
    kvmem_region_info info;
    const uint64_t offset = number_of(step, "offset");
    if (kvmem_region_get_info(region_of(step), &info, NULL) < 0 || info.tier != KVMEM_TIER_SYSTEM ||
        offset + size > info.size)
        fail("the bytes are not in host memory of the region");
    return (unsigned char *)(uintptr_t)(info.address + offset);
}

static kvmem_status write_region(struct step *step, kvmem_error **error)
{
    unsigned char *bytes;
    const size_t size = bytes_of(step, "bytes", &bytes);
    (void)error;
    memcpy(region_bytes(step, size), bytes, size);
    return KVMEM_STATUS_OK;
}

static kvmem_status read_region(struct step *step, kvmem_error **error)
{
    unsigned char *bytes;
    const size_t size = bytes_of(step, "bytes", &bytes);
    (void)error;
    if (memcmp(region_bytes(step, size), bytes, size) != 0) fail("the region has other bytes");
    return KVMEM_STATUS_OK;
}

static kvmem_status wait_for_release(struct step *step, kvmem_error **error)
{
    (void)error;
    await_release(step_name(step));
    return KVMEM_STATUS_OK;
}

/* ---- layouts ---- */

static void read_shape(struct step *step, kvmem_layout_config *config)
{
    kvmem_layout_config_init(config, sizeof *config);
    config->num_blocks = number_of(step, "num_blocks");
    config->num_layers = number_of(step, "num_layers");
    config->outer_dim = number_of(step, "outer_dim");
    config->page_size = number_of(step, "page_size");
    config->inner_dim = number_of(step, "inner_dim");
    config->dtype_width = number_of(step, "dtype_width");
    config->alignment = number_of(step, "alignment");
    config->num_heads = number_of(step, "num_heads");
    config->kind = (uint32_t)word_value(step, "kind", kinds);
    config->block_dim = (uint32_t)word_value(step, "block_dim", block_dims);
    config->order = has(step, "order") ? text_of(step, "order") : NULL;
    config->block_stride = number_of(step, "block_stride");
    config->layer_stride = number_of(step, "layer_stride");
    config->outer_stride = number_of(step, "outer_stride");
    config->token_stride = number_of(step, "token_stride");
    config->head_stride = number_of(step, "head_stride");
    config->element_stride = number_of(step, "element_stride");
}

static kvmem_status layout_requirements(struct step *step, kvmem_error **error)
{
    kvmem_layout_config config;
    kvmem_layout_requirements needs;
    read_shape(step, &config);
    const kvmem_status status = kvmem_layout_get_requirements(&config, &needs, error);
    if (status < 0) return status;
    add_number(step, "num_regions", needs.num_regions);
    add_number(step, "region_size", needs.region_size);
    add_number(step, "total_size", needs.total_size);
    add_number(step, "allocation_size", needs.allocation_size);
    return status;
}

static kvmem_status layout_build(struct step *step, kvmem_error **error)
{
    const char *name = new_name(step);
    char paths[2][512], *names[MAX_LIST];
    kvmem_layout *layout = NULL;
    kvmem_region *regions[MAX_LIST];
    kvmem_layout_config config;
    kvmem_layout_options options;
    kvmem_system_options memory;
    kvmem_disk_options file;
    read_shape(step, &config);
    kvmem_layout_options_init(&options, sizeof options);
    options.config = &config;
    if (has(step, "regions")) {
        options.source = KVMEM_LAYOUT_REGIONS;
        options.count = list_of(step, "regions", names);
        for (size_t i = 0; i < options.count; i++) regions[i] = object(names[i], REGION);
        options.regions = regions;
    } else if (strcmp(text_of(step, "memory"), "disk") == 0) {
        options.source = KVMEM_LAYOUT_ALLOCATE;
        kvmem_disk_options_init(&file, sizeof file);
        file.flags = flags_value(step, "disk_flags", disk_flags);
        set_paths(step, &file, paths);
        options.disk = &file;
    } else if (strcmp(text_of(step, "memory"), "system") == 0) {
        options.source = KVMEM_LAYOUT_ALLOCATE;
        kvmem_system_options_init(&memory, sizeof memory);
        memory.flags = flags_value(step, "system_flags", system_flags);
        options.system = &memory;
    } else {
        fail("memory is system or disk");
    }
    const kvmem_status status = kvmem_layout_build(&options, &layout, error);
    return add_object(name, LAYOUT, layout, status);
}

static kvmem_status layout_info(struct step *step, kvmem_error **error)
{
    kvmem_layout_info info;
    const kvmem_status status = kvmem_layout_get_info(layout_of(step), &info, error);
    if (status < 0) return status;
    add_number(step, "num_blocks", info.num_blocks);
    add_number(step, "num_layers", info.num_layers);
    add_number(step, "outer_dim", info.outer_dim);
    add_number(step, "page_size", info.page_size);
    add_number(step, "inner_dim", info.inner_dim);
    add_number(step, "dtype_width", info.dtype_width);
    add_number(step, "alignment", info.alignment);
    add_number(step, "num_heads", info.num_heads);
    add_number(step, "num_regions", info.num_regions);
    add_word(step, "kind", info.kind, kinds);
    add_word(step, "block_dim", info.block_dim, block_dims);
    add_word(step, "tier", info.tier, tiers);
    add_word(step, "locality", info.locality, localities);
    add_word(step, "memory_type", info.memory_type, memory_types);
    add_text(step, "order", info.order);
    add_number(step, "block_stride", info.block_stride);
    add_number(step, "layer_stride", info.layer_stride);
    add_number(step, "outer_stride", info.outer_stride);
    add_number(step, "token_stride", info.token_stride);
    add_number(step, "head_stride", info.head_stride);
    add_number(step, "element_stride", info.element_stride);
    return status;
}

static kvmem_status layout_strides(struct step *step, kvmem_error **error)
{
    kvmem_layout_strides strides;
    const kvmem_status status = kvmem_layout_get_strides(layout_of(step), &strides, error);
    if (status < 0) return status;
    add_number(step, "num_bases", strides.num_bases);
    add_number(step, "block_stride", strides.block_stride);
    add_number(step, "layer_stride", strides.layer_stride);
    add_number(step, "outer_stride", strides.outer_stride);
    add_number(step, "token_stride", strides.token_stride);
    add_number(step, "head_stride", strides.head_stride);
    add_number(step, "element_stride", strides.element_stride);
    add_number(step, "layer_step", strides.layer_step);
    add_number(step, "outer_step", strides.outer_step);
    add_number(step, "token_step", strides.token_step);
    add_number(step, "head_step", strides.head_step);
    add_number(step, "size", strides.size);
    add_number(step, "row_size", strides.row_size);
    return status;
}

static kvmem_status located(struct step *step, const kvmem_block *range, kvmem_status status)
{
    kvmem_layout_strides strides;
    if (status < 0) return status;
    if (kvmem_layout_get_strides(layout_of(step), &strides, NULL) < 0) fail("the layout has no strides");
    add_number(step, "offset", range->address - strides.bases[0]);
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

static kvmem_status layout_region(struct step *step, kvmem_error **error)
{
    const char *name = new_name(step);
    kvmem_region *region = NULL;
    const kvmem_status status = kvmem_layout_get_region(object(text_of(step, "layout"), LAYOUT),
        (size_t)number_of(step, "index"), &region, error);
    return add_object(name, REGION, region, status);
}

static kvmem_status layout_checksum(struct step *step, kvmem_error **error)
{
    uint32_t blocks[MAX_LIST], checksums[MAX_LIST];
    const size_t count = ids_of(step, "blocks", blocks);
    const kvmem_status status = kvmem_layout_checksum(layout_of(step), blocks, count, checksums, error);
    if (status < 0) return status;
    add_text(step, "checksums", "");
    for (size_t i = 0; i < count; i++) append_number(step, checksums[i]);
    return status;
}

static kvmem_status layout_resize(struct step *step, kvmem_error **error)
{
    return kvmem_layout_resize(layout_of(step), number_of(step, "num_blocks"), error);
}

static kvmem_status destroy(struct step *step, kvmem_error **error)
{
    (void)error;
    destroy_object(step_name(step));
    return KVMEM_STATUS_OK;
}

/* ---- all calls ---- */

static const struct {
    const char *name;
    call *run;
} calls[] = {
    {"status_name", status_name},
    {"region_create_system", create_system},
    {"region_create_disk", create_disk},
    {"region_create_view", create_view},
    {"region_adopt_host", adopt_host},
    {"region_get_info", region_info},
    {"region_get_path", region_path},
    {"region_get_holders", region_holders},
    {"region_get_residency", region_residency},
    {"region_sync", region_sync},
    {"region_check_owner", region_check_owner},
    {"region_commit", region_commit},
    {"region_decommit", region_decommit},
    {"write", write_region},
    {"read", read_region},
    {"await_release", wait_for_release},
    {"layout_get_requirements", layout_requirements},
    {"layout_build", layout_build},
    {"layout_get_info", layout_info},
    {"layout_get_strides", layout_strides},
    {"layout_get_block", layout_block},
    {"layout_get_row", layout_row},
    {"layout_get_region", layout_region},
    {"layout_checksum", layout_checksum},
    {"layout_resize", layout_resize},
    {"fill", fill_block},
    {"expect", expect_block},
    {"queue_create", queue_create},
    {"queue_poll", queue_poll},
    {"queue_wait", queue_wait},
    {"transfer_create", transfer_create},
    {"transfer_start", transfer_start},
    {"transfer_submit", transfer_submit},
    {"transfer_cancel", transfer_cancel},
    {"transfer_submit_pairs", transfer_submit_pairs},
    {"transfer_poll", transfer_poll},
    {"transfer_wait", transfer_wait},
    {"transfer_wait_layers", transfer_wait_layers},
    {"transfer_get_layers", transfer_get_layers},
    {"transfer_get_info", transfer_get_info},
    {"transfer_explain", transfer_explain},
    {"share_create_region", share_create_region},
    {"share_create_layout", share_create_layout},
    {"share_create_received", share_create_received},
    {"share_get_info", share_get_info},
    {"share_open_region", share_open_region},
    {"share_open_layout", share_open_layout},
    {"broker_create", broker_create},
    {"broker_publish", broker_publish},
    {"broker_grant", broker_grant},
    {"broker_unpublish", broker_unpublish},
    {"broker_get_info", broker_get_info},
    {"share_fetch", share_fetch},
    {"destroy", destroy},
};

kvmem_status run_call(struct step *step, kvmem_error **error)
{
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        if (strcmp(calls[i].name, step->call) == 0) return calls[i].run(step, error);
    fail("there is no call %s", step->call);
}
