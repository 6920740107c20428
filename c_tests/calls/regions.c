// SPDX-License-Identifier: Apache-2.0
// Calls on regions.
#include "options.h"
#include "owned.h"
#include "table.h"

#define CREATES_REGION(tier, function)                                                               \
    static void create_##tier(fuzz *fuzz) {                                                          \
        const kvmem_##tier##_options options = options_##tier(fuzz, true);                           \
        CREATE(fuzz, REGIONS, function, or_null(fuzz, &options));                                    \
    }
CREATES_REGION(system, kvmem_region_create_system)
CREATES_REGION(disk, kvmem_region_create_disk)
CREATES_REGION(pinned, kvmem_region_create_pinned)
CREATES_REGION(device, kvmem_region_create_device)
CREATES_REGION(elastic, kvmem_region_create_elastic)

static void create_object(fuzz *fuzz) {
    const kvmem_object_options options = options_object(fuzz);
    CREATE(fuzz, REGIONS, kvmem_region_create_object, or_null(fuzz, &options));
}

static void create_block(fuzz *fuzz) {
    const kvmem_block_options options = options_block(fuzz);
    CREATE(fuzz, REGIONS, kvmem_region_create_block, or_null(fuzz, &options));
}

/* If the adoption fails, the memory still belongs to the caller, and the fuzzer unmaps it. */
static void adopt_host(fuzz *fuzz) {
    const kvmem_adopt_options options = owned_adopt_options(fuzz);
    void *region = POISON;
    const kvmem_status status = TRY(fuzz, kvmem_region_adopt_host, or_null(fuzz, &options), (void *)&region);
    check_created(fuzz, REGIONS, status, region, true);
    if (status != KVMEM_STATUS_OK) owned_not_adopted(&options);
}

static void adopt_device(fuzz *fuzz) {
    const int32_t device = (int32_t)random_below(fuzz, 2);
    const kvmem_adopt_options options = owned_device_options(fuzz, device);
    const int32_t said = random_one_in(fuzz, 20) ? random_device(fuzz) : device;
    void *region = POISON;
    const kvmem_status status = TRY(fuzz, kvmem_region_adopt_device, or_null(fuzz, &options), said,
                                    (void *)&region);
    check_created(fuzz, REGIONS, status, region, true);
    if (status != KVMEM_STATUS_OK) owned_not_adopted(&options);
}

static void adopt_memfd(fuzz *fuzz) {
    const kvmem_adopt_memfd_options options = owned_file_options(fuzz);
    CREATE(fuzz, REGIONS, kvmem_region_adopt_memfd, or_null(fuzz, &options));
    close(options.fd);
}

static void create_view(fuzz *fuzz) {
    const kvmem_region *region = table_pick(fuzz, REGIONS);
    const uint64_t offset = random_one_in(fuzz, 4) ? random_size(fuzz, MIB) : 4096 * random_below(fuzz, 16);
    CREATE(fuzz, REGIONS, kvmem_region_create_view, region, offset, random_size(fuzz, 256 * KIB));
}

/* Writes and reads all of the memory that the info describes. */
static void use_bytes(const kvmem_region_info *info) {
    if ((info->tier != KVMEM_TIER_SYSTEM && info->tier != KVMEM_TIER_PINNED) || info->size == 0) return;
    volatile unsigned char *bytes = (volatile unsigned char *)(uintptr_t)info->address;
    const unsigned char last = bytes[info->size - 1];
    if ((info->flags & KVMEM_REGION_READ_ONLY) == 0) {
        bytes[info->size - 1] = last;
        bytes[0] = bytes[0];
    }
}

static void get_info(fuzz *fuzz) {
    const kvmem_region *region = table_pick(fuzz, REGIONS);
    kvmem_region_info info;
    if (random_one_in(fuzz, 60)) TRY(fuzz, kvmem_region_get_info, region, NULL);
    else if (TRY(fuzz, kvmem_region_get_info, region, &info) == KVMEM_STATUS_OK) use_bytes(&info);
}

CREATES(get_path, BLOBS, kvmem_region_get_path, REGIONS)

static void get_agent(fuzz *fuzz) {
    CREATE(fuzz, BLOBS, kvmem_region_get_agent, table_pick(fuzz, REGIONS), random_below(fuzz, 3));
}


/* An elastic region, if a few tries find one. */
static kvmem_region *pick_elastic(fuzz *fuzz) {
    kvmem_region *region = NULL;
    kvmem_region_info info;
    for (int i = 0; i < 6; i++) {
        region = table_pick(fuzz, REGIONS);
        if (TRY(fuzz, kvmem_region_get_info, region, &info) == KVMEM_STATUS_OK &&
            info.tier == KVMEM_TIER_ELASTIC)
            break;
    }
    return region;
}

/* Often the first extent, which every elastic region has. */
static uint64_t random_extent(fuzz *fuzz) {
    return random_one_in(fuzz, 2) ? 0 : 2 * MIB * random_below(fuzz, 4);
}

static void commit(fuzz *fuzz) {
    kvmem_region *region = pick_elastic(fuzz);
    const uint64_t offset = random_extent(fuzz);
    TRY(fuzz, kvmem_region_commit, region, offset, random_size(fuzz, 4 * MIB));
}

static void decommit(fuzz *fuzz) {
    kvmem_region *region = pick_elastic(fuzz);
    const uint64_t offset = random_extent(fuzz);
    const uint64_t size =
        random_one_in(fuzz, 10) ? random_size(fuzz, 4 * MIB) : 2 * MIB * (1 + random_below(fuzz, 2));
    if (random_one_in(fuzz, 2)) TRY(fuzz, kvmem_region_commit, region, offset, size);
    TRY(fuzz, kvmem_region_decommit, region, offset, size);
}

DESTROYS(destroy_region, REGIONS)

static void unlink_file(fuzz *fuzz) { unlink(owned_file_path(fuzz)); }

const operation region_operations[] = {
    OPERATION_WITH(12, create_system, 0, BIT(REGIONS)),
    OPERATION_WITH(8, create_disk, 0, BIT(REGIONS)),
    OPERATION_WITH(6, create_pinned, 0, BIT(REGIONS)),
    OPERATION_WITH(6, create_device, 0, BIT(REGIONS)),
    OPERATION_WITH(12, create_elastic, 0, BIT(REGIONS)),
    OPERATION_WITH(1, create_object, 0, BIT(REGIONS)),
    OPERATION_WITH(1, create_block, 0, BIT(REGIONS)),
    OPERATION_WITH(6, adopt_host, 0, BIT(REGIONS)),
    OPERATION_WITH(4, adopt_device, 0, BIT(REGIONS)),
    OPERATION_WITH(3, adopt_memfd, 0, BIT(REGIONS)),
    OPERATION_WITH(6, create_view, BIT(REGIONS), 0),
    OPERATION_WITH(5, get_info, BIT(REGIONS), 0),
    OPERATION_WITH(12, get_path, BIT(REGIONS), 0),
    OPERATION_WITH(6, get_agent, BIT(REGIONS), 0),
    OPERATION_WITH(8, commit, BIT(REGIONS), 0),
    OPERATION_WITH(5, decommit, BIT(REGIONS), 0),
    OPERATION_WITH(12, destroy_region, BIT(REGIONS), 0),
    OPERATION(2, unlink_file),
    {0},
};
