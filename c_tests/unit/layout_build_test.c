// SPDX-License-Identifier: Apache-2.0
// What a layout refuses to be built from: impossible dimensions, regions that do not fit, mixed memory.
#include "harness.h"

static kvmem_layout_options allocate_options(const kvmem_layout_config *config,
                                             const kvmem_system_options *system) {
    kvmem_layout_options options;
    memset(&options, 0xEE, sizeof(options)); /* init must overwrite every byte */
    kvmem_layout_options_init(&options, sizeof(options));
    options.config = config;
    options.source = KVMEM_LAYOUT_ALLOCATE;
    options.system = system;
    return options;
}

/* Each way to break one field of a good configuration, and what the message must name. */
static const struct {
    size_t field; /* offset of a uint64_t */
    uint64_t value;
    const char *named;
} broken[] = {
    {offsetof(kvmem_layout_config, num_blocks), 0, "num_blocks"},
    {offsetof(kvmem_layout_config, num_layers), 0, "num_layers"},
    {offsetof(kvmem_layout_config, outer_dim), 0, "outer_dim"},
    {offsetof(kvmem_layout_config, outer_dim), 3, "outer_dim"},
    {offsetof(kvmem_layout_config, page_size), 0, "page_size"},
    {offsetof(kvmem_layout_config, inner_dim), 0, "inner_dim"},
    {offsetof(kvmem_layout_config, dtype_width), 0, "dtype_width"},
    {offsetof(kvmem_layout_config, dtype_width), 3, "dtype_width"},
    {offsetof(kvmem_layout_config, dtype_width), 16, "dtype_width"},
    {offsetof(kvmem_layout_config, alignment), 3, "alignment"},
    {offsetof(kvmem_layout_config, alignment), UINT64_MAX, "alignment"},
    {offsetof(kvmem_layout_config, num_blocks), UINT64_C(1) << 32, "num_blocks"},
    {offsetof(kvmem_layout_config, num_blocks), UINT64_MAX, "num_blocks"},
    {offsetof(kvmem_layout_config, num_layers), UINT64_MAX, "2^63"},
    {offsetof(kvmem_layout_config, page_size), UINT64_MAX, "2^63"},
    {offsetof(kvmem_layout_config, inner_dim), UINT64_C(1) << 62, "2^63"},
    {offsetof(kvmem_layout_config, page_size), INT64_MAX / 12, "2^63"}, /* a piece fits, the layers do not */
    {offsetof(kvmem_layout_config, alignment), UINT64_C(1) << 62, "2^63"},
};

TEST(impossible_dimensions_are_refused_before_allocation) {
    kvmem_system_options system = OPTIONS(kvmem_system_options);
    for (size_t kind = 0; kind < KV_NUM_KINDS; kind++) {
        for (size_t i = 0; i < NUM(broken); i++) {
            kvmem_layout_config config = kv_config(&kv_kinds[kind]);
            memcpy((char *)&config + broken[i].field, &broken[i].value, sizeof(uint64_t));
            const kvmem_layout_options options = allocate_options(&config, &system);
            REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, broken[i].named, kvmem_layout_build, &options);
            kvmem_layout_requirements needs;
            EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, broken[i].named,
                           kvmem_layout_get_requirements(&config, &needs, ERR));
        }
    }
}

TEST(unknown_kinds_are_refused) {
    kvmem_layout_config config = kv_config(&kv_kinds[0]);
    const kvmem_layout_options options = allocate_options(&config, REF(OPTIONS(kvmem_system_options)));
    const uint32_t kinds[] = {0, 3, UINT32_MAX};
    for (size_t i = 0; i < NUM(kinds); i++) {
        config.kind = kinds[i];
        REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "kind", kvmem_layout_build, &options);
    }
    config = kv_config(&kv_kinds[1]);
    config.block_dim = 3;
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "block_dim", kvmem_layout_build, &options);
    config = kv_config(&kv_kinds[0]);
    config.block_dim = KVMEM_BLOCK_DIM_SECOND;
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "block_dim", kvmem_layout_build, &options);
}

TEST(heads_must_divide_the_inner_dimension) {
    kvmem_layout_config config = kv_config(&kv_kinds[0]);
    config.num_heads = 4; /* of an inner dimension of 6 */
    const kvmem_layout_options options = allocate_options(&config, REF(OPTIONS(kvmem_system_options)));
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "num_heads", kvmem_layout_build, &options);
}

static kvmem_layout_options region_options(const kvmem_layout_config *config, kvmem_region *const *regions,
                                           size_t count) {
    return OPTIONS(kvmem_layout_options, it.config = config, it.source = KVMEM_LAYOUT_REGIONS,
                   it.regions = regions, it.count = count);
}

static void destroy_all(kvmem_region **regions, size_t count) {
    for (size_t i = 0; i < count; i++) {
        kvmem_region_destroy(regions[i]);
    }
}

static _Alignas(4096) unsigned char memory[4][8192];

TEST(the_number_of_regions_is_exact) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    kvmem_region *regions[4];
    for (size_t i = 0; i < 4; i++) {
        regions[i] = region_adopt(memory[i], sizeof(memory[i]));
    }
    const size_t counts[] = {0, 1, 2, 4};
    for (size_t i = 0; i < NUM(counts); i++) {
        const kvmem_layout_options options = region_options(&config, regions, counts[i]);
        REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "3", kvmem_layout_build, &options);
    }
    destroy_all(regions, 4);
}

TEST(a_small_region_is_named_with_both_sizes) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]); /* 7 blocks x 2 x 48 bytes = 672 */
    kvmem_region *regions[] = {
        region_adopt(memory[0], 672),
        region_adopt(memory[1], 671),
        region_adopt(memory[2], 672),
    };
    const kvmem_layout_options options = region_options(&config, regions, 3);
    REFUSE(KVMEM_STATUS_OUT_OF_RANGE, "region 1", kvmem_layout_build, &options);
    CHECK_HAS(test_last_message(), "671");
    CHECK_HAS(test_last_message(), "672");
    destroy_all(regions, 3);
}

TEST(a_large_region_is_fine) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    kvmem_region *regions[] = {
        region_adopt(memory[0], 8192),
        region_adopt(memory[1], 672),
        region_adopt(memory[2], 673),
    };
    const kvmem_layout_options options = region_options(&config, regions, 3);
    GET(kvmem_layout *, layout, kvmem_layout_build, &options);
    kvmem_layout_destroy(layout);
    destroy_all(regions, 3);
}

TEST(mixed_memory_is_refused_naming_both) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    kvmem_region *file = region_create_temporary_file(8192);
    kvmem_region *regions[] = {region_adopt(memory[0], 8192), region_adopt(memory[1], 8192), file};
    const kvmem_layout_options options = region_options(&config, regions, 3);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "system", kvmem_layout_build, &options);
    CHECK_HAS(test_last_message(), "disk");
    destroy_all(regions, 3);
}

TEST(a_region_off_the_alignment_is_refused) {
    kvmem_layout_config config = WITH(kv_config(&kv_kinds[0]), it.alignment = 256);
    OWNED(kvmem_region) region = region_adopt(memory[0] + 128, 8000);
    const kvmem_layout_options options = region_options(&config, &region, 1);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "256", kvmem_layout_build, &options);
}

TEST(overlapping_regions_are_refused) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    kvmem_region *regions[] = {
        region_adopt(memory[0], 672),
        region_adopt(memory[0] + 671, 672),
        region_adopt(memory[1], 672),
    };
    const kvmem_layout_options options = region_options(&config, regions, 3);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "overlap", kvmem_layout_build, &options);
    destroy_all(regions, 3);
}

TEST(a_missing_region_is_named) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    kvmem_region *regions[] = {region_adopt(memory[0], 672), NULL, region_adopt(memory[2], 672)};
    const kvmem_layout_options options = region_options(&config, regions, 3);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "1", kvmem_layout_build, &options);
    destroy_all(regions, 3);
}

TEST(the_source_and_what_it_needs_must_agree) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    kvmem_system_options system = OPTIONS(kvmem_system_options);
    kvmem_disk_options disk = OPTIONS(kvmem_disk_options);
    OWNED(kvmem_region) region = region_adopt(memory[0], sizeof(memory[0]));
    kvmem_layout_options options = WITH(allocate_options(&config, &system), it.disk = &disk);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "disk", kvmem_layout_build, &options);
    options = allocate_options(&config, NULL);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "system", kvmem_layout_build, &options);
    system.size = 4096;
    options = allocate_options(&config, &system);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "size", kvmem_layout_build, &options);
    system.size = 0;
    options.regions = &region;
    options.count = 1;
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "regions", kvmem_layout_build, &options);
    options = region_options(&config, &region, 1);
    options.system = &system;
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "system", kvmem_layout_build, &options);
    kvmem_device_options device = OPTIONS(kvmem_device_options);
    options = region_options(&config, &region, 1);
    options.device = &device;
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "device", kvmem_layout_build, &options);
    options = region_options(&config, &region, 1);
    options.source = KVMEM_LAYOUT_REGISTRATIONS;
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "does not take regions", kvmem_layout_build, &options);
    options.source = 0;
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "source", kvmem_layout_build, &options);
    options.source = 4;
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "source", kvmem_layout_build, &options);
}

TEST(a_failed_allocation_leaves_no_file) {
    kvmem_layout_config config = kv_config(&kv_kinds[0]);
    config.page_size = UINT64_C(1) << 40; /* half a PiB: fits 64 bits, not the machine */
    kvmem_system_options system = OPTIONS(kvmem_system_options);
    const kvmem_layout_options options = allocate_options(&config, &system);
    REFUSE(KVMEM_STATUS_OUT_OF_MEMORY, "bytes", kvmem_layout_build, &options);
    KEEPS_FILES;
    kvmem_disk_options disk = OPTIONS(kvmem_disk_options);
    CLEANUP(scratch_remove) scratch directory = scratch_create("/dev/shm");
    disk.directory = directory.path;
    kvmem_layout_options on_disk = WITH(allocate_options(&config, NULL), it.disk = &disk);
    kvmem_layout *layout = NULL;
    CHECK(kvmem_layout_build(&on_disk, &layout, ERR) < 0);
    CHECK(layout == NULL);
}

TEST(a_local_layout_cannot_be_exported) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    kvmem_system_options system = OPTIONS(kvmem_system_options);
    const kvmem_layout_options options = allocate_options(&config, &system);
    OWN(kvmem_layout, layout, kvmem_layout_build, &options);
    REFUSE(KVMEM_STATUS_INVALID_STATE, "agent", kvmem_layout_export, layout);
    REFUSE(KVMEM_STATUS_NOT_FOUND, "", kvmem_layout_get_agent, layout);
}
