// SPDX-License-Identifier: Apache-2.0
// Regions of pinned memory: accessible by devices, on the requested NUMA node, freed when destroyed.
#include "engine.h"
#include "caller_context.h"

static kvmem_pinned_options pinned_options(uint64_t size) {
    return OPTIONS(kvmem_pinned_options, it.size = size);
}

static kvmem_region *create_with(kvmem_pinned_options options) {
    return MADE(kvmem_region, kvmem_region_create_pinned, &options);
}

/* With some options changed: `create(MIB, it.threads = 3)`. */
#define create(...) create_with(OPTIONS_OF(__VA_ARGS__))
#define OPTIONS_OF(...) WITH(pinned_options(TEST_FIRST(__VA_ARGS__, )), TEST_REST(__VA_ARGS__, (void)0))

static void refuse_with(kvmem_pinned_options options, kvmem_status status, const char *part) {
    REFUSE(status, part, kvmem_region_create_pinned, &options);
}

#define refuse(status, part, ...) refuse_with(OPTIONS_OF(__VA_ARGS__), status, part)

static unsigned char *bytes_of(const kvmem_region *region) {
    return (unsigned char *)(uintptr_t)region_info(region).address;
}

/* Returns whether the driver reports an address as page-locked host memory. */
static bool is_page_locked(uint64_t address) { return driver_memory_type(address) == CU_MEMORYTYPE_HOST; }

static void check_page_locked(const kvmem_region *region) {
    const kvmem_region_info info = region_info(region);
    for (uint64_t offset = 0; offset < info.size; offset += 4096)
        CHECK(is_page_locked(info.address + offset));
    CHECK(is_page_locked(info.address + info.size - 1));
}

/* Copies all of it to a device and back, and compares. */
static void check_device_reads(int device, const kvmem_region *region) {
    const kvmem_region_info info = region_info(region);
    kv_fill(bytes_of(region), info.size, (uint32_t)info.size);
    ENGINE_MEMORY(there, device, info.size);
    enter_device(device);
    CU(cuMemcpyHtoDAsync_v2(there, bytes_of(region), info.size, NULL));
    CU(cuStreamSynchronize(NULL));
    leave_device(device);
    CLEANUP(test_free) unsigned char *arrived = test_allocate(info.size);
    read_device(device, arrived, there, info.size);
    CHECK_BYTES(arrived, bytes_of(region), info.size);
}

TEST(devices_read_every_byte) {
    static const uint64_t sizes[] = {1, 4095, 4096, 4097, 3 * MIB + 123};
    for (size_t i = 0; i < NUM(sizes); i++) {
        OWNED(kvmem_region) region = create(sizes[i]);
        CHECK_EQ(region_info(region).size, sizes[i]);
        CHECK_EQ(region_info(region).address % 4096, 0);
        check_page_locked(region);
        for (int device = 0; device < driver_devices(); device++) {
            check_device_reads(device, region); /* also devices other than that of the options */
        }
    }
}

/* Returns the NUMA node of a device if this machine has it, or -1. */
static int numa_node_of(int device) {
    GET(kvmem_cuda_device_info, info, kvmem_cuda_get_device_info, device);
    char path[64];
    snprintf(path, sizeof(path), "/sys/devices/system/node/node%d", info.numa_node);
    return access(path, F_OK) == 0 ? info.numa_node : -1;
}

TEST_EACH_DEVICE(info_of_a_pinned_region) {
    OWNED(kvmem_region) region = create(5 * MIB + 7, it.device = device);
    const kvmem_region_info info = region_info(region);
    CHECK_EQ(info.size, 5 * MIB + 7);
    CHECK_EQ(info.memory_page_size, sysconf(_SC_PAGESIZE));
    CHECK_EQ(info.alignment, 1);
    CHECK_EQ(info.tier, KVMEM_TIER_PINNED);
    CHECK_EQ(info.origin, KVMEM_ORIGIN_ALLOCATED);
    CHECK_EQ(info.device, device);
    CHECK_EQ(info.numa_node, numa_node_of(device));
    CHECK_EQ(info.fd, -1);
    CHECK_EQ(info.registration_count, 0);
}

TEST(destroying_a_region_unlocks_and_unmaps_its_memory) {
    RETAIN_DEVICE(0); /* otherwise the end of the context unlocks the memory */
    kvmem_region *region = create(8 * MIB);
    const uint64_t address = region_info(region).address;
    CHECK(is_page_locked(address));
    CALL(kvmem_region_destroy(region));
    CHECK(!is_page_locked(address));
    CHECK(!is_mapped(address));
}

TEST(views_keep_the_memory_alive) {
    kvmem_region *region = create(MIB);
    const uint64_t address = region_info(region).address;
    GET(kvmem_region *, view, kvmem_region_create_view, region, 4000, 10000);
    CALL(kvmem_region_destroy(region));
    const kvmem_region_info info = region_info(view);
    CHECK_EQ(info.address, address + 4000);
    CHECK_EQ(info.tier, KVMEM_TIER_PINNED);
    CHECK_EQ(info.origin, KVMEM_ORIGIN_VIEW);
    CHECK_EQ(info.device, 0);
    check_page_locked(view);
    check_device_reads(0, view);
    CALL(kvmem_region_destroy(view));
    CHECK(!is_mapped(address));
}

TEST(huge_pages_are_used_or_the_fallback_is_reported) {
    OWNED(kvmem_region) region = create(16 * MIB);
    const kvmem_region_info info = region_info(region);
    const kvmem_region_residency residency = region_residency(region);
    CHECK_EQ(residency.resident_bytes, info.size);
    if (info.flags == KVMEM_REGION_HUGE_PAGE_FALLBACK) {
        CHECK_EQ(residency.transparent_huge_bytes, 0);
    } else {
        CHECK_EQ(info.flags, 0);
        CHECK_EQ(residency.transparent_huge_bytes % (2 * MIB), 0);
        CHECK(residency.transparent_huge_bytes <= info.size);
    }
}

TEST(huge_pages_can_be_disabled) {
    OWNED(kvmem_region) region = create(16 * MIB, it.flags = KVMEM_PINNED_NO_HUGE_PAGES);
    const kvmem_region_info info = region_info(region);
    CHECK_EQ(region_residency(region).transparent_huge_bytes, 0);
    CHECK_EQ(info.flags, 0);
    check_device_reads(0, region);
}

TEST(any_number_of_threads_populates_the_pages) {
    static const uint32_t threads[] = {0, 1, 3, 64};
    for (size_t i = 0; i < NUM(threads); i++) {
        OWNED(kvmem_region) region = create(40 * MIB, it.threads = threads[i]);
        CHECK_EQ(count_resident_pages(region_info(region).address, 40 * MIB), 40 * MIB / 4096);
    }
}

TEST(a_numa_node_that_exists_is_bound) {
    const uint32_t nodes[] = {0, numa_node_to_test()};
    for (size_t i = 0; i < NUM(nodes); i++) {
        OWNED(kvmem_region) region = create(MIB, it.flags = KVMEM_PINNED_NUMA_BIND, it.numa_node = nodes[i]);
        const kvmem_region_info info = region_info(region);
        CHECK_EQ(info.numa_node, nodes[i]);
        numa_check_placed(info.address, info.size, NUMA_BIND, nodes[i]);
    }
}

TEST_EACH_DEVICE(pages_are_on_the_numa_node_of_the_gpu) {
    OWNED(kvmem_region) region = create(MIB, it.device = device);
    const kvmem_region_info info = region_info(region);
    if (info.numa_node >= 0) { /* -1 if the driver or the machine reports none */
        numa_check_placed(info.address, info.size, NUMA_PREFERRED, (uint32_t)info.numa_node);
    }
}

TEST(a_missing_numa_node_is_rejected) {
    static const uint32_t nodes[] = {1023, 1000000, UINT32_MAX};
    for (size_t i = 0; i < NUM(nodes); i++)
        refuse(KVMEM_STATUS_INVALID_ARGUMENT, TEXT("%u", nodes[i]), MIB, it.flags = KVMEM_PINNED_NUMA_BIND,
               it.numa_node = nodes[i]);
}

TEST(a_numa_node_without_its_flag_is_rejected) {
    refuse(KVMEM_STATUS_INVALID_ARGUMENT, "numa_node", MIB, it.numa_node = 3);
}

TEST(chunk_sizes_that_are_not_multiples_of_a_page_are_rejected) {
    static const uint64_t wrong[] = {1, 4095, 4097, UINT64_MAX};
    for (size_t i = 0; i < NUM(wrong); i++)
        refuse(KVMEM_STATUS_INVALID_ARGUMENT, TEXT("%ju", (uintmax_t)wrong[i]), MIB,
               it.chunk_size = wrong[i]);
}

TEST(invalid_sizes_are_rejected) {
    refuse(KVMEM_STATUS_INVALID_ARGUMENT, "0 bytes", 0);
    refuse(KVMEM_STATUS_OUT_OF_MEMORY, "72057594037927936 bytes of host memory requested", UINT64_C(1) << 56);
    CHECK_HAS(test_last_message(), "are available");
    refuse(KVMEM_STATUS_INVALID_ARGUMENT, "18446744073709551615", UINT64_MAX);
}

TEST(missing_devices_are_rejected) {
    EACH_MISSING_DEVICE(missing) {
        refuse(KVMEM_STATUS_OUT_OF_RANGE, TEXT("%d", *missing), MIB, it.device = *missing);
    }
}

/* Destroying a region does not unlock regions at adjacent addresses. */
TEST(many_small_regions_are_independent) {
    kvmem_region *regions[64];
    for (size_t i = 0; i < NUM(regions); i++) regions[i] = create(4096);
    for (size_t i = 0; i < NUM(regions); i += 2) CALL(kvmem_region_destroy(regions[i]));
    for (size_t i = 1; i < NUM(regions); i += 2) {
        check_page_locked(regions[i]);
        check_device_reads(0, regions[i]);
        CALL(kvmem_region_destroy(regions[i]));
    }
}
