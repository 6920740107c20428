// SPDX-License-Identifier: Apache-2.0
// Regions of device memory: of the requested size, on the requested device, freed when destroyed.
#include "filled.h"
#include "caller_context.h"

static kvmem_device_options device_options(int device, uint64_t size) {
    return OPTIONS(kvmem_device_options, it.device = device, it.size = size);
}

static kvmem_region *create(int device, uint64_t size) {
    const kvmem_device_options options = device_options(device, size);
    return MADE(kvmem_region, kvmem_region_create_device, &options);
}

static void refuse(int device, uint64_t size, kvmem_status status, const char *part) {
    const kvmem_device_options options = device_options(device, size);
    REFUSE(status, part, kvmem_region_create_device, &options);
}

/* Returns whether the driver reports an address as device memory. */
static bool is_device_memory(uint64_t address) { return driver_memory_type(address) == CU_MEMORYTYPE_DEVICE; }

static const uint64_t sizes[] = {1, 511, 4096, 2 * MIB + 1, 64 * MIB};

TEST_EACH_DEVICE(info_of_a_device_region) {
    for (size_t i = 0; i < NUM(sizes); i++) {
        OWNED(kvmem_region) region = create(device, sizes[i]);
        const kvmem_region_info info = region_info(region);
        CHECK(info.address != 0);
        CHECK_EQ(info.size, sizes[i]);
        CHECK_EQ(info.memory_page_size, sysconf(_SC_PAGESIZE));
        CHECK_EQ(info.alignment, 1);
        CHECK_EQ(info.flags, 0);
        CHECK_EQ(info.tier, KVMEM_TIER_DEVICE);
        CHECK_EQ(info.origin, KVMEM_ORIGIN_ALLOCATED);
        CHECK_EQ(info.device, device);
        CHECK_EQ(info.numa_node, -1);
        CHECK_EQ(info.fd, -1);
        CHECK_EQ(info.registration_count, 0);
    }
}

TEST_EACH_DEVICE(the_driver_reports_the_requested_device) {
    OWNED(kvmem_region) region = create(device, 3 * MIB);
    const uint64_t ends[] = {region_info(region).address, region_info(region).address + 3 * MIB - 1};
    for (size_t i = 0; i < NUM(ends); i++) {
        CHECK(is_device_memory(ends[i]));
        CU_GET(int, ordinal, cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ends[i]));
        CHECK_EQ(ordinal, device);
    }
}

TEST(every_byte_can_be_written_and_read) {
    for (size_t i = 0; i < NUM(sizes); i++) {
        OWNED(kvmem_region) region = create(0, sizes[i]);
        fill_device(0, region_info(region).address, sizes[i], 0x5A);
        check_device(0, region_info(region).address, sizes[i], 0x5A);
    }
}

TEST(destroying_a_region_frees_its_memory) {
    RETAIN_DEVICE(0); /* otherwise the end of the context frees the memory */
    kvmem_region *region = create(0, 64 * MIB);
    const uint64_t address = region_info(region).address;
    CHECK(is_device_memory(address));
    CALL(kvmem_region_destroy(region));
    CHECK(!is_device_memory(address));
    CALL(kvmem_region_destroy(NULL));
}

TEST(views_keep_the_memory_alive) {
    kvmem_region *region = create(0, MIB);
    const uint64_t address = region_info(region).address;
    OWN(kvmem_region, view, kvmem_region_create_view, region, 4096, 8192);
    CALL(kvmem_region_destroy(region));
    const kvmem_region_info info = region_info(view);
    CHECK_EQ(info.address, address + 4096);
    CHECK_EQ(info.size, 8192);
    CHECK_EQ(info.tier, KVMEM_TIER_DEVICE);
    CHECK_EQ(info.origin, KVMEM_ORIGIN_VIEW);
    CHECK_EQ(info.device, 0);
    CHECK(is_device_memory(info.address));
    EXPECT(KVMEM_STATUS_OUT_OF_RANGE, kvmem_region_create_view(view, 1, 8192, &region, ERR));
}

TEST_EACH_DEVICE(errors_contain_the_requested_and_the_free_bytes) {
    CU_GET(size_t, memory, cuDeviceTotalMem_v2(&memory, device));
    const uint64_t too_much[] = {2 * memory, UINT64_C(1) << 50, UINT64_C(1) << 62, UINT64_MAX};
    for (size_t i = 0; i < NUM(too_much); i++) {
        refuse(device, too_much[i], KVMEM_STATUS_OUT_OF_MEMORY, TEXT("%ju bytes", (uintmax_t)too_much[i]));
        CHECK_HAS(test_last_message(), "free");
        CHECK_CAUSE(KVMEM_DOMAIN_CUDA, CUDA_ERROR_OUT_OF_MEMORY);
        CHECK_STR(test_last_cause().name, "CUDA_ERROR_OUT_OF_MEMORY");
    }
    CALL(kvmem_region_destroy(create(device, MIB))); /* the device still works */
}

TEST_CALL(zero_bytes_are_rejected, refuse(0, 0, KVMEM_STATUS_INVALID_ARGUMENT, "0 bytes"))

TEST(missing_devices_are_rejected) {
    EACH_MISSING_DEVICE(missing) {
        refuse(*missing, MIB, KVMEM_STATUS_OUT_OF_RANGE, TEXT("%d", *missing));
    }
}

TEST(device_regions_have_no_file_to_sync_and_no_path) {
    OWNED(kvmem_region) region = create(0, MIB);
    EXPECT_OK(kvmem_region_sync(region, ERR));
    REFUSE(KVMEM_STATUS_NOT_FOUND, "", kvmem_region_get_path, region);
}
