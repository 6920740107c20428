// SPDX-License-Identifier: Apache-2.0
// Invalid input to building a layout: impossible dimensions, regions that do not fit, mixed memory.
#include "harness.h"

static kvmem_layout_options allocate_options(const kvmem_layout_config *config,
                                             const kvmem_system_options *system) {
    return OPTIONS(kvmem_layout_options, it.config = config, it.source = KVMEM_LAYOUT_ALLOCATE,
                   it.system = system);
}

/* Each change of one field of a valid configuration, and the part that the message must contain. */
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
    {offsetof(kvmem_layout_config, page_size), INT64_MAX / 12, "2^63"}, /* a piece fits, all layers do not */
    {offsetof(kvmem_layout_config, alignment), UINT64_C(1) << 62, "2^63"},
};

TEST(impossible_dimensions_fail_before_allocation) {
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

/* An impossible configuration of a layout in system memory. */
static void refuse_config(kvmem_layout_config config, const char *part) {
    const kvmem_layout_options options = allocate_options(&config, REF(OPTIONS(kvmem_system_options)));
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, part, kvmem_layout_build, &options);
}

TEST(an_order_is_required) {
    refuse_config(WITH(kv_config(&kv_kinds[0]), it.order = NULL), "order");
    refuse_config(WITH(kv_config(&kv_kinds[0]), it.order = "fully contiguous"), "'f' in the order");
}

/* Heads of which nothing is known must not change any address. */
TEST(an_order_with_heads_needs_their_number_unless_elements_follow_them) {
    refuse_config(WITH(kv_config(&kv_kinds[0]), it.order = "BLOHNC"), "num_heads is not given");
    refuse_config(WITH(kv_config(&kv_kinds[0]), it.head_stride = 48), "num_heads is not given");
    OWNED(kvmem_layout) layout = layout_allocate_system(REF(kv_config(&kv_kinds[0])));
    GET(kvmem_layout_info, info, kvmem_layout_get_info, layout);
    CHECK_STR(info.order, "BLONHC");
    CHECK_EQ(info.num_heads, 0);
}

TEST(heads_must_divide_the_inner_dimension) {
    /* of an inner dimension of 6 */
    refuse_config(WITH(kv_config(&kv_kinds[0]), it.num_heads = 4), "num_heads");
}

static kvmem_layout_options region_options(const kvmem_layout_config *config, kvmem_region *const *regions,
                                           size_t count) {
    return OPTIONS(kvmem_layout_options, it.config = config, it.source = KVMEM_LAYOUT_REGIONS,
                   it.regions = regions, it.count = count);
}

static _Alignas(4096) unsigned char memory[4][8192];

/* Memory of a layer, whose 7 blocks of 2 x 48 bytes are 672 bytes. Without an address: memory of a file; with
   0 bytes: none. */
typedef struct span {
    void *address;
    uint64_t size;
} span;

/* Builds a layout of three layers over the first `count` of the spans, and expects this status. */
static void build_over(const span *spans, size_t count, kvmem_status status, const char *part) {
    kvmem_region *regions[4] = {NULL};
    CHECK(count <= NUM(regions));
    for (size_t i = 0; i < count; i++)
        regions[i] = spans[i].address != NULL ? region_adopt(spans[i].address, spans[i].size)
                     : spans[i].size != 0     ? region_create_temporary_file(spans[i].size)
                                              : NULL;
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    OWNED(kvmem_layout) layout = NULL;
    EXPECT_MESSAGE(status, part,
                   kvmem_layout_build(REF(region_options(&config, regions, count)), &layout, ERR));
    CHECK_EQ(layout != NULL, status == KVMEM_STATUS_OK);
    for (size_t i = 0; i < count; i++) kvmem_region_destroy(regions[i]);
}

TEST(the_number_of_regions_is_exact) {
    const span spans[] = {{memory[0], 8192}, {memory[1], 8192}, {memory[2], 8192}, {memory[3], 8192}};
    build_over(spans, 0, KVMEM_STATUS_INVALID_ARGUMENT, "3");
    build_over(spans, 1, KVMEM_STATUS_INVALID_ARGUMENT, "needs 3: one for each of 3 layers");
    build_over(spans, 2, KVMEM_STATUS_INVALID_ARGUMENT, "3");
    build_over(spans, 4, KVMEM_STATUS_INVALID_ARGUMENT, "3");
}

TEST(a_small_region_fails_with_both_sizes) {
    const span spans[] = {{memory[0], 672}, {memory[1], 671}, {memory[2], 672}};
    build_over(spans, 3, KVMEM_STATUS_OUT_OF_RANGE, "region 1");
    CHECK_HAS(test_last_message(), "671");
    CHECK_HAS(test_last_message(), "672");
}

TEST(a_large_region_is_accepted) {
    const span spans[] = {{memory[0], 8192}, {memory[1], 672}, {memory[2], 673}};
    build_over(spans, 3, KVMEM_STATUS_OK, "");
}

TEST(mixed_memory_fails_with_both_tiers) {
    const span spans[] = {{memory[0], 8192}, {memory[1], 8192}, {NULL, 8192}};
    build_over(spans, 3, KVMEM_STATUS_INVALID_ARGUMENT, "system");
    CHECK_HAS(test_last_message(), "disk");
}

TEST(a_misaligned_region_fails) {
    const kvmem_layout_config config = WITH(kv_config(&kv_kinds[0]), it.alignment = 256);
    OWNED(kvmem_region) region = region_adopt(memory[0] + 128, 8000);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "256", kvmem_layout_build,
           REF(region_options(&config, &region, 1)));
}

TEST(overlapping_regions_fail) {
    const span spans[] = {{memory[0], 672}, {memory[0] + 671, 672}, {memory[1], 672}};
    build_over(spans, 3, KVMEM_STATUS_INVALID_ARGUMENT, "overlap");
}

TEST(a_missing_region_is_named) {
    const span spans[] = {{memory[0], 672}, {NULL, 0}, {memory[2], 672}};
    build_over(spans, 3, KVMEM_STATUS_INVALID_ARGUMENT, "1");
}

static void refuse_options(kvmem_layout_options options, const char *part) {
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, part, kvmem_layout_build, &options);
}

TEST(the_source_and_what_it_needs_must_agree) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    const kvmem_system_options system = OPTIONS(kvmem_system_options);
    const kvmem_system_options sized = OPTIONS(kvmem_system_options, it.size = 4096);
    const kvmem_disk_options disk = OPTIONS(kvmem_disk_options);
    const kvmem_device_options device = OPTIONS(kvmem_device_options);
    OWNED(kvmem_region) region = region_adopt(memory[0], sizeof(memory[0]));
    refuse_options(WITH(allocate_options(&config, &system), it.disk = &disk), "disk");
    refuse_options(allocate_options(&config, NULL), "system");
    refuse_options(allocate_options(&config, &sized), "size of kvmem_system_options is");
    refuse_options(WITH(allocate_options(&config, &system), it.regions = &region, it.count = 1), "regions");
    refuse_options(WITH(region_options(&config, &region, 1), it.system = &system), "system");
    refuse_options(WITH(region_options(&config, &region, 1), it.device = &device), "device");
    refuse_options(WITH(region_options(&config, &region, 1), it.source = KVMEM_LAYOUT_REGISTRATIONS),
                   "regions is given, which KVMEM_LAYOUT_REGISTRATIONS does not use");
    refuse_options(WITH(region_options(&config, &region, 1), it.source = 0), "source");
    refuse_options(WITH(region_options(&config, &region, 1), it.source = 4), "source");
}

TEST(a_failed_allocation_leaves_no_file) {
    /* Half a PiB: fits in 64 bits, but not in the machine. */
    const kvmem_layout_config config = WITH(kv_config(&kv_kinds[0]), it.page_size = UINT64_C(1) << 40);
    const kvmem_layout_options options = allocate_options(&config, REF(OPTIONS(kvmem_system_options)));
    REFUSE(KVMEM_STATUS_OUT_OF_MEMORY, "bytes", kvmem_layout_build, &options);
    KEEPS_FILES;
    CLEANUP(scratch_remove) scratch directory = scratch_create("/dev/shm");
    const kvmem_disk_options disk = OPTIONS(kvmem_disk_options, it.directory = directory.path);
    const kvmem_layout_options on_disk = WITH(allocate_options(&config, NULL), it.disk = &disk);
    kvmem_layout *layout = NULL;
    CHECK(kvmem_layout_build(&on_disk, &layout, ERR) < 0);
    CHECK(layout == NULL);
}

TEST(a_local_layout_cannot_be_exported) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OWNED(kvmem_layout) layout = layout_allocate_system(&config);
    REFUSE(KVMEM_STATUS_INVALID_STATE, "agent", kvmem_layout_export, layout);
    CHECK(layout_info(layout).agent == NULL);
}
