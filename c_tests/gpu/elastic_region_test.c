// SPDX-License-Identifier: Apache-2.0
// Elastic regions: constant addresses, memory that is committed and decommitted in extents.
#include "caller_context.h"

#define EXTENT (4 * MIB)

static kvmem_region *reserve_by(uint64_t size, uint64_t extent_size) {
    return MADE(kvmem_region, kvmem_region_create_elastic,
                REF(OPTIONS(kvmem_elastic_options, it.size = size, it.extent_size = extent_size)));
}

static kvmem_region *reserve(uint64_t size) { return reserve_by(size, EXTENT); }

static void expect_state(const kvmem_region *region, uint64_t committed, uint64_t generation) {
    const kvmem_region_info info = region_info(region);
    CHECK_EQ(info.num_committed, committed);
    CHECK_EQ(info.generation, generation);
}

static void write_extent(const kvmem_region *region, uint64_t extent, int value) {
    unsigned char *bytes = test_allocate(EXTENT);
    memset(bytes, value, EXTENT);
    write_device(0, region_info(region).address + extent * EXTENT, bytes, EXTENT);
    free(bytes);
}

static void expect_extent(const kvmem_region *region, uint64_t extent, int value) {
    unsigned char *bytes = test_allocate(EXTENT);
    memset(bytes, 0, EXTENT);
    read_device(0, bytes, region_info(region).address + extent * EXTENT, EXTENT);
    CHECK_FILLED(bytes, value, EXTENT);
    free(bytes);
}

TEST(a_new_region_has_no_memory) {
    OWNED(kvmem_region) region = reserve(4 * EXTENT - 1); /* rounded up */
    const kvmem_region_info info = region_info(region);
    CHECK(info.address != 0);
    CHECK_EQ(info.size, 4 * EXTENT);
    CHECK_EQ(info.tier, KVMEM_TIER_ELASTIC);
    CHECK_EQ(info.device, 0);
    CHECK_EQ(info.memory_page_size, EXTENT);
    CHECK_EQ(region_info(region).memory_page_size, EXTENT);
    CHECK_EQ(region_info(region).num_extents, 4);
    expect_state(region, 0, 0);
}

TEST(committing_and_decommitting_keeps_addresses_and_contents) {
    OWNED(kvmem_region) region = reserve(4 * EXTENT);
    const uint64_t address = region_info(region).address;
    EXPECT_OK(kvmem_region_commit(region, EXTENT, 1, ERR)); /* one byte commits its extent */
    expect_state(region, 1, 1);
    write_extent(region, 1, 0x11);
    EXPECT_OK(kvmem_region_commit(region, 0, 4 * EXTENT, ERR));
    expect_state(region, 4, 2);
    expect_extent(region, 1, 0x11); /* committed extents are unchanged */
    write_extent(region, 3, 0x33);
    EXPECT_OK(kvmem_region_decommit(region, 0, 3 * EXTENT, ERR));
    expect_state(region, 1, 3);
    expect_extent(region, 3, 0x33);
    EXPECT_OK(kvmem_region_commit(region, 0, EXTENT, ERR));
    write_extent(region, 0, 0x44);
    expect_extent(region, 0, 0x44);
    CHECK_EQ(region_info(region).address, address);
}

TEST(calls_without_effect_do_not_change_the_generation) {
    OWNED(kvmem_region) region = reserve(2 * EXTENT);
    EXPECT_OK(kvmem_region_commit(region, 0, EXTENT, ERR));
    EXPECT_OK(kvmem_region_commit(region, 0, EXTENT, ERR));
    expect_state(region, 1, 1);
}

TEST(invalid_calls_fail_without_effect) {
    kvmem_region *region = reserve(4 * EXTENT);
    EXPECT_OK(kvmem_region_commit(region, EXTENT, EXTENT, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "the 4194304 bytes at offset 0 are not committed",
                   kvmem_region_decommit(region, 0, EXTENT, ERR)); /* not committed */
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "the 4194304 bytes at offset 8388608 are not committed",
                   kvmem_region_decommit(region, EXTENT, 2 * EXTENT, ERR));
    EXPECT(KVMEM_STATUS_INVALID_ARGUMENT, kvmem_region_decommit(region, EXTENT, EXTENT - 1, ERR));
    EXPECT(KVMEM_STATUS_INVALID_ARGUMENT, kvmem_region_decommit(region, EXTENT + 4096, EXTENT, ERR));
    EXPECT(KVMEM_STATUS_INVALID_ARGUMENT, kvmem_region_commit(region, 0, 0, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_RANGE,
                   "1 bytes at offset 16777216 exceed the 16777216 bytes that were reserved",
                   kvmem_region_commit(region, 4 * EXTENT, 1, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_RANGE, "exceed the 16777216 bytes that were reserved",
                   kvmem_region_decommit(region, 3 * EXTENT, 2 * EXTENT, ERR));
    EXPECT(KVMEM_STATUS_OUT_OF_RANGE, kvmem_region_commit(region, UINT64_MAX, 2, ERR));
    expect_state(region, 1, 1);

    GET(kvmem_region *, view, kvmem_region_create_view, region, 0, EXTENT);
    EXPECT(KVMEM_STATUS_INVALID_ARGUMENT, kvmem_region_commit(view, 0, EXTENT, ERR));
    CHECK_EQ(region_info(view).num_committed, 1); /* that of its region */
    CALL(kvmem_region_destroy(region));
    CALL(kvmem_region_destroy(view));

    static char host[64];
    OWNED(kvmem_region) rigid = region_adopt(host, sizeof(host));
    EXPECT(KVMEM_STATUS_INVALID_ARGUMENT, kvmem_region_commit(rigid, 0, 1, ERR));
    const kvmem_region_info info = region_info(rigid);
    CHECK_EQ(info.num_extents + info.num_committed + info.generation, 0);
}

/* Also if the driver can say how many bytes are free, which needs a context. */
static void refuse_to_commit_all(kvmem_region *region, uint64_t missing, uint64_t memory) {
    const char *const requested = TEXT("commit %ju bytes", (uintmax_t)missing);
    const char *const total = TEXT("%ju", (uintmax_t)memory);
    const uint64_t size = region_info(region).size;
    EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_MEMORY, requested, kvmem_region_commit(region, 0, size, ERR));
    CHECK_HAS(test_last_message(), total);
    RETAIN_DEVICE(0);
    EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_MEMORY, requested, kvmem_region_commit(region, 0, size, ERR));
    CHECK_HAS(test_last_message(), total);
    CHECK_HAS(test_last_message(), "free");
}

/* On a GPU it would take all memory from the programs beside it: there the first extent is larger than the
   memory. */
TEST(committing_more_than_the_device_has_fails_without_effect) {
    CU_GET(size_t, memory, cuDeviceTotalMem_v2(&memory, 0));
    if (!driver_is_stand_in()) {
        const uint64_t extent = (memory / EXTENT + 1) * EXTENT;
        OWNED(kvmem_region) large = reserve_by(2 * extent, extent);
        refuse_to_commit_all(large, 2 * extent, memory);
        expect_state(large, 0, 0);
        return;
    }
    OWNED(kvmem_region) region = reserve(2 * memory);
    EXPECT_OK(kvmem_region_commit(region, 0, EXTENT, ERR));
    write_extent(region, 0, 0x77);
    refuse_to_commit_all(region, region_info(region).size - EXTENT, memory);
    expect_state(region, 1, 1);
    expect_extent(region, 0, 0x77);
    /* the failed calls left no memory allocated */
    EXPECT_OK(kvmem_region_commit(region, EXTENT, 4 * EXTENT, ERR));
}

static uint64_t recommended_granularity(void) {
    kvmem_vmm_options options = OPTIONS(kvmem_vmm_options);
    GET(uint64_t, granularity, kvmem_vmm_get_granularity, &options, KVMEM_GRANULARITY_RECOMMENDED);
    return granularity;
}

TEST(the_default_extent_size_is_64_mib) {
    kvmem_elastic_options options = OPTIONS(kvmem_elastic_options, it.size = 1);
    GET(kvmem_region *, region, kvmem_region_create_elastic, &options);
    CHECK_EQ(region_info(region).memory_page_size, 64 * MIB);
    CHECK_EQ(region_info(region).size, 64 * MIB);
    CALL(kvmem_region_destroy(region));
    options.extent_size = recommended_granularity();
    CHECK_EQ(64 * MIB % options.extent_size, 0);
    EXPECT_OK(kvmem_region_create_elastic(&options, &region, ERR));
    CHECK_EQ(region_info(region).memory_page_size, options.extent_size);
    CALL(kvmem_region_destroy(region));
}

TEST(invalid_options_are_rejected) {
    kvmem_elastic_options options = OPTIONS(kvmem_elastic_options, it.size = EXTENT,
                                            it.extent_size = EXTENT + 4096);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "", kvmem_region_create_elastic, &options);
    options.extent_size = 0;
    options.size = 0;
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "", kvmem_region_create_elastic, &options);
    options.size = EXTENT;
    options.device = driver_devices();
    REFUSE(KVMEM_STATUS_OUT_OF_RANGE, "", kvmem_region_create_elastic, &options);
}

static kvmem_status try_to_reserve(uint64_t size, uint64_t extent_size) {
    kvmem_elastic_options options = OPTIONS(kvmem_elastic_options, it.size = size,
                                            it.extent_size = extent_size);
    OWNED(kvmem_region) region = (kvmem_region *)&region;
    const kvmem_status status = kvmem_region_create_elastic(&options, &region, ERR);
    CHECK((region == NULL) == (status != KVMEM_STATUS_OK));
    return status;
}

TEST(too_many_extents_and_too_large_sizes_are_rejected) {
    const uint64_t most = UINT64_C(1) << 24;
    const uint64_t granule = recommended_granularity();
    EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_RANGE, "16777217 extents",
                   try_to_reserve((most + 1) * granule, granule));
    EXPECT(KVMEM_STATUS_OUT_OF_RANGE, try_to_reserve(most * granule + 1, granule));
    const uint64_t sizes[] = {UINT64_MAX, UINT64_MAX - EXTENT + 1, INT64_MAX};
    for (size_t i = 0; i < NUM(sizes); i++)
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "exceed the address space",
                       try_to_reserve(sizes[i], EXTENT));
    /* No process has that many addresses. The error depends on the driver. */
    const kvmem_status status = try_to_reserve(UINT64_C(1) << 62, UINT64_C(1) << 40);
    CHECK(status == KVMEM_STATUS_OUT_OF_MEMORY ||
          (driver_symbol("sim_reset") == NULL && status == KVMEM_STATUS_CUDA));
}
