// SPDX-License-Identifier: Apache-2.0
// Regions of device memory that an engine owns: checked with the driver, unchanged, released once.
#include "engine.h"
#include "filled.h"
#include "caller_context.h"

#define ALLOCATION (8 * MIB)

/* The releases may be NULL. */
static kvmem_adopt_options adopt_options(uint64_t address, uint64_t size, int *releases) {
    return OPTIONS(kvmem_adopt_options, it.address = (void *)(uintptr_t)address, it.size = size,
                   it.release = releases != NULL ? count_release : NULL, it.user_data = releases);
}

static kvmem_region *adopt(uint64_t address, uint64_t size, int device, int *releases) {
    const kvmem_adopt_options options = adopt_options(address, size, releases);
    return MADE(kvmem_region, kvmem_region_adopt_device, &options, device);
}

/* Checks that adopting fails, and that the release callback is not called. */
static void refuse(uint64_t address, uint64_t size, int device, kvmem_status status, const char *part) {
    int releases = 0;
    const kvmem_adopt_options options = adopt_options(address, size, &releases);
    REFUSE(status, part, kvmem_region_adopt_device, &options, device);
    expect_releases(&releases, 0);
}

static void check_adopted(uint64_t address, uint64_t size, int device) {
    OWNED(kvmem_region) region = adopt(address, size, device, NULL);
    const kvmem_region_info info = region_info(region);
    CHECK_EQ(info.address, address);
    CHECK_EQ(info.size, size);
    CHECK_EQ(info.tier, KVMEM_TIER_DEVICE);
    CHECK_EQ(info.origin, KVMEM_ORIGIN_ADOPTED);
    CHECK_EQ(info.device, device);
    CHECK_EQ(info.fd, -1);
    CHECK_EQ(info.numa_node, -1);
}

TEST_EACH_DEVICE(an_allocation_is_adopted_whole_or_in_part) {
    ENGINE_MEMORY(address, device, ALLOCATION);
    check_adopted(address, ALLOCATION, device);
    check_adopted(address + 12345, 54321, device);
    check_adopted(address + ALLOCATION - 1, 1, device);
}

TEST(adopted_memory_is_unchanged_and_not_freed) {
    ENGINE_MEMORY(address, 0, ALLOCATION);
    fill_device(0, address, ALLOCATION, 0x3C);
    CALL(kvmem_region_destroy(adopt(address, ALLOCATION, 0, NULL)));
    check_device(0, address, ALLOCATION, 0x3C);
}

TEST(memory_is_released_once_with_its_last_reference) {
    int releases = 0;
    ENGINE_MEMORY(address, 0, ALLOCATION);
    kvmem_region *region = adopt(address, ALLOCATION, 0, &releases);
    GET(kvmem_region *, view, kvmem_region_create_view, region, 100, 4);
    CALL(kvmem_region_destroy(region));
    kvmem_layout *layout = region_lay_out(view);
    CALL(kvmem_region_destroy(view));
    expect_releases(&releases, 0);
    CALL(kvmem_layout_destroy(layout));
    expect_releases(&releases, 1);
}

TEST(memory_can_be_adopted_twice) {
    int releases = 0;
    ENGINE_MEMORY(address, 0, ALLOCATION);
    kvmem_region *first = adopt(address, ALLOCATION, 0, &releases);
    kvmem_region *second = adopt(address + 1, ALLOCATION - 1, 0, &releases);
    CALL(kvmem_region_destroy(first));
    expect_releases(&releases, 1);
    CALL(kvmem_region_destroy(second));
    expect_releases(&releases, 2);
}

/* A copy that violates the access of a mapping would destroy the context. */
TEST(memory_is_adopted_with_the_access_that_the_gpu_has) {
    kvmem_vmm_options options = OPTIONS(kvmem_vmm_options, it.size = 0);
    GET(uint64_t, granularity, kvmem_vmm_get_granularity, &options, KVMEM_GRANULARITY_MINIMUM);
    options.size = granularity;
    kvmem_vmm_span span;
    OWN(kvmem_vmm_range, range, kvmem_vmm_range_create, 2 * granularity, 0, &span);
    OWN(kvmem_vmm_memory, first, kvmem_vmm_memory_create, &options);
    OWN(kvmem_vmm_memory, second, kvmem_vmm_memory_create, &options);
    OWN(kvmem_vmm_mapping, writable, kvmem_vmm_mapping_create, range, 0, first, NULL);
    OWN(kvmem_vmm_mapping, other, kvmem_vmm_mapping_create, range, granularity, second, NULL);
    EXPECT_OK(kvmem_vmm_mapping_set_access(writable, 0, KVMEM_ACCESS_READ_WRITE, ERR));
    const uint64_t address = span.address;
    retain_device(0); /* VMM memory has no context */
    refuse(address, 2 * granularity, 0, KVMEM_STATUS_PERMISSION_DENIED, "no access");
    refuse(address + granularity, 1, 0, KVMEM_STATUS_PERMISSION_DENIED, "no access");
    EXPECT_OK(kvmem_vmm_mapping_set_access(other, 0, KVMEM_ACCESS_READ, ERR));
    refuse(address, 2 * granularity, 0, KVMEM_STATUS_PERMISSION_DENIED, "KVMEM_ADOPT_READ_ONLY");
    const kvmem_adopt_options read_only =
        WITH(adopt_options(address, 2 * granularity, NULL), it.flags = KVMEM_ADOPT_READ_ONLY);
    OWN(kvmem_region, region, kvmem_region_adopt_device, &read_only, 0);
    CHECK(region_info(region).flags & KVMEM_REGION_READ_ONLY);
    REFUSE(KVMEM_STATUS_PERMISSION_DENIED, "KVMEM_SHARE_READ_ONLY", kvmem_share_create_region, region, NULL);
    OWNED(kvmem_layout) layout = region_lay_out(region);
    const kvmem_block_pair pair = {0, 0};
    const kv_job move = JOB(it.run.pairs = &pair, it.run.num_pairs = 1);
    REFUSE(KVMEM_STATUS_PERMISSION_DENIED, "KVMEM_ADOPT_READ_ONLY", kv_prepare, layout, layout, &move);
    EXPECT_OK(kvmem_vmm_mapping_set_access(other, 0, KVMEM_ACCESS_READ_WRITE, ERR));
    OWNED(kvmem_region) whole = adopt(address, 2 * granularity, 0, NULL);
    CHECK(!(region_info(whole).flags & KVMEM_REGION_READ_ONLY));
    release_device(0);
}

TEST(a_range_past_the_end_is_rejected) {
    CU_GET(size_t, memory, cuDeviceTotalMem_v2(&memory, 0));
    ENGINE_MEMORY(address, 0, ALLOCATION);
    refuse(address, ALLOCATION + memory, 0, KVMEM_STATUS_OUT_OF_RANGE, "only the first");
    refuse(address + ALLOCATION - 1, 1 + memory, 0, KVMEM_STATUS_OUT_OF_RANGE, "only the first");
    refuse(address, UINT64_MAX - address + 2, 0, KVMEM_STATUS_INVALID_ARGUMENT, "address space");
    refuse(address, UINT64_MAX, 0, KVMEM_STATUS_INVALID_ARGUMENT, "address space");
}

TEST(freed_memory_is_rejected) {
    RETAIN_DEVICE(0);
    const uint64_t freed = engine_allocate(0, ALLOCATION);
    engine_free(0, freed);
    refuse(freed, ALLOCATION, 0, KVMEM_STATUS_INVALID_ARGUMENT, "not device memory");
    refuse(freed + 4096, 1, 0, KVMEM_STATUS_INVALID_ARGUMENT, "not device memory");
}

TEST(host_memory_is_rejected) {
    static int of_the_program;
    int on_the_stack = 0;
    void *on_the_heap = test_allocate(4096);
    const void *const pageable[] = {&of_the_program, &on_the_stack, on_the_heap, (const void *)16};
    for (size_t i = 0; i < NUM(pageable); i++)
        refuse((uint64_t)(uintptr_t)pageable[i], 4, 0, KVMEM_STATUS_INVALID_ARGUMENT, "not device memory");
    free(on_the_heap);
    void *pinned = engine_allocate_host(0, 4096);
    refuse((uint64_t)(uintptr_t)pinned, 4096, 0, KVMEM_STATUS_INVALID_ARGUMENT, "host memory");
    engine_free_host(0, pinned);
}

/* The driver reports it as device memory, but its pages can migrate to the host. */
TEST(managed_memory_is_rejected) {
    CUdeviceptr address = 0;
    RETAIN_DEVICE(0);
    CU_ON(0, cuMemAllocManaged(&address, ALLOCATION, CU_MEM_ATTACH_GLOBAL));
    refuse(address, ALLOCATION, 0, KVMEM_STATUS_INVALID_ARGUMENT, "managed memory");
    CU_ON(0, cuMemFree_v2(address));
}

TEST(an_empty_range_and_null_are_rejected) {
    ENGINE_MEMORY(address, 0, ALLOCATION);
    refuse(0, ALLOCATION, 0, KVMEM_STATUS_INVALID_ARGUMENT, "NULL");
    refuse(address, 0, 0, KVMEM_STATUS_INVALID_ARGUMENT, "0 bytes");
}

TEST(the_wrong_device_is_rejected) {
    ENGINE_MEMORY(address, 0, ALLOCATION);
    const int wrong[] = {driver_devices(), 1, -1, 1000000};
    for (size_t i = 0; i < NUM(wrong); i++)
        refuse(address, ALLOCATION, wrong[i], KVMEM_STATUS_INVALID_ARGUMENT, "memory of device 0");
}

TEST(memory_of_several_mappings_is_adopted) {
    OPENED(span, span, 0, 4, 3);
    check_adopted(span.address, 3 * span.granule, 0);
    check_adopted(span.address + span.granule - 1, 2, 0);
    check_adopted(span.address + 100, 3 * span.granule - 200, 0);
}

TEST(memory_that_ends_before_the_range_is_rejected) {
    OPENED(span, span, 0, 4, 2);
    refuse(span.address, 2 * span.granule + 1, 0, KVMEM_STATUS_OUT_OF_RANGE, "only the first");
    refuse(span.address + 5, 3 * span.granule, 0, KVMEM_STATUS_OUT_OF_RANGE, "only the first");
    refuse(span.address + 2 * span.granule, 1, 0, KVMEM_STATUS_INVALID_ARGUMENT, "not device memory");
}

/* Some engines do not use the primary context. */
TEST(memory_of_another_context_is_adopted) {
    CU_GET(CUcontext, own, cuCtxCreate_v2(&own, 0, 0));
    CU_GET(CUdeviceptr, address, cuMemAlloc_v2(&address, ALLOCATION));
    CU_GET(CUcontext, popped, cuCtxPopCurrent_v2(&popped));
    check_adopted(address + 512, ALLOCATION - 512, 0);
    CU(cuCtxDestroy_v2(own));
}
