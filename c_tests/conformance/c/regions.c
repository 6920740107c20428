/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of regions. */
#include "calls.h"

#include <string.h>

static kvmem_region *region_of(struct step *step)
{
    return object(step_name(step), REGION);
}

void set_paths(struct step *step, kvmem_disk_options *options, char paths[2][512])
{
    if (has(step, "path")) options->path = strcpy(paths[0], path_of(text_of(step, "path")));
    if (has(step, "directory")) options->directory = strcpy(paths[1], path_of(text_of(step, "directory")));
}

static kvmem_status create_system(struct step *step, union handle *made, kvmem_error **error)
{
    kvmem_system_options options = {.struct_size = sizeof(options)};
    options.flags = flags_value(step, "flags", system_flags);
    SET(options, size);
    SET(options, huge_page_size);
    options.prefault_threads = (uint32_t)number_of(step, "prefault_threads");
    return kvmem_region_create_system(&options, &made->region, error);
}

static kvmem_status create_disk(struct step *step, union handle *made, kvmem_error **error)
{
    char paths[2][512];
    kvmem_disk_options options = {.struct_size = sizeof(options)};
    options.flags = flags_value(step, "flags", disk_flags);
    SET(options, size);
    set_paths(step, &options, paths);
    return kvmem_region_create_disk(&options, &made->region, error);
}

static kvmem_status create_view(struct step *step, union handle *made, kvmem_error **error)
{
    const kvmem_region *parent = object(text_of(step, "region"), REGION);
    return kvmem_region_create_view(parent, number_of(step, "offset"), number_of(step, "size"), &made->region,
                                    error);
}

static kvmem_status adopt_host(struct step *step, union handle *made, kvmem_error **error)
{
    kvmem_adopt_options options = {.struct_size = sizeof(options)};
    options.flags = flags_value(step, "flags", adopt_flags);
    SET(options, size);
    options.address = adopt_memory(step_name(step), options.size, &options.user_data);
    options.release = released;
    const kvmem_status status = kvmem_region_adopt_host(&options, &made->region, error);
    if (status < 0) forget_memory(step_name(step));
    return status;
}

static kvmem_status region_info(struct step *step, kvmem_error **error)
{
    kvmem_region_info info;
    const kvmem_status status = kvmem_region_get_info(region_of(step), &info, error);
    if (status < 0) return status;
    NUMBER(info, size);
    NUMBER(info, memory_page_size);
    NUMBER(info, alignment);
    WORD(info, tier, tiers);
    WORD(info, origin, origins);
    add_flags(step, "flags", info.flags, region_flags);
    NUMBER(info, registration_count);
    NUMBER(info, num_extents);
    NUMBER(info, num_committed);
    NUMBER(info, generation);
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

static unsigned char *region_bytes(struct step *step, size_t size)
{
    kvmem_region_info info;
    const uint64_t offset = number_of(step, "offset");
    if (kvmem_region_get_info(region_of(step), &info, NULL) < 0 ||
        (info.tier != KVMEM_TIER_SYSTEM && info.tier != KVMEM_TIER_PINNED) ||
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

const struct call region_calls[] = {
    {"region_create_system", .create = create_system, .type = REGION},
    {"region_create_disk", .create = create_disk, .type = REGION},
    {"region_create_view", .create = create_view, .type = REGION},
    {"region_adopt_host", .create = adopt_host, .type = REGION},
    {"region_get_info", .run = region_info},
    {"region_get_path", .run = region_path},
    {"write", .run = write_region},
    {"read", .run = read_region},
    {"await_release", .run = wait_for_release},
    {.name = NULL},
};
