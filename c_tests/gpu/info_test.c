// SPDX-License-Identifier: Apache-2.0
// What the library says of the driver and its devices, beside what the driver says itself.
#include "stance.h"

#include <limits.h>

static kvmem_cuda_device_info device_info(int device) {
    GET(kvmem_cuda_device_info, info, kvmem_cuda_get_device_info, device);
    return info;
}

TEST(the_driver_says_its_version_and_devices) {
    GET(kvmem_cuda_info, info, kvmem_cuda_get_info);
    int version = 0;
    int count = 0;
    CU(cuDriverGetVersion(&version));
    CU(cuDeviceGetCount(&count));
    CHECK(version >= 12000);
    CHECK_EQ(info.driver_version, version);
    CHECK_EQ(info.device_count, count);
}

TEST_EACH_DEVICE(a_device_says_who_it_is) {
    const kvmem_cuda_device_info info = device_info(device);
    char name[sizeof(info.name)] = "";
    CUuuid uuid;
    size_t memory = 0;
    CU(cuDeviceGetName(name, sizeof(name), device));
    CU(cuDeviceGetUuid_v2(&uuid, device));
    CU(cuDeviceTotalMem_v2(&memory, device));
    CHECK(name[0] != '\0');
    CHECK_STR(info.name, name);
    static const unsigned char nobody[sizeof(info.uuid)];
    CHECK(memcmp(info.uuid, nobody, sizeof(nobody)) != 0);
    CHECK_BYTES(info.uuid, uuid.bytes, sizeof(info.uuid));
    CHECK_EQ(info.total_memory, memory);
}

/* An attribute's value; 0 where the driver does not know it. */
static int attribute(int device, CUdevice_attribute which) {
    int value = 0;
    return driver_get()->cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS ? value : 0;
}

/* Whether memory of a device can be created and exported as a handle of this type, seen by doing so. */
static bool can_export(int device, CUmemAllocationHandleType type) {
    const CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = type,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
    };
    size_t granule = 0;
    const driver *driver = driver_get();
    if (driver->cuMemGetAllocationGranularity(&granule, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM) !=
        CUDA_SUCCESS) {
        return false;
    }
    CUmemGenericAllocationHandle memory = 0;
    if (driver->cuMemCreate(&memory, granule, &properties, 0) != CUDA_SUCCESS) {
        return false;
    }
    union {
        int fd;
        unsigned char fabric[64];
    } handle;
    const bool exported = driver->cuMemExportToShareableHandle(&handle, memory, type, 0) == CUDA_SUCCESS;
    if (exported && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        close(handle.fd);
    }
    CU(cuMemRelease(memory));
    return exported;
}

TEST_EACH_DEVICE(a_device_says_what_it_can_do) {
    const uint64_t can = device_info(device).capabilities;
    CHECK_EQ((can & KVMEM_CUDA_VMM) != 0,
             attribute(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) != 0);
    CHECK_EQ((can & KVMEM_CUDA_RDMA_WITH_VMM) != 0,
             attribute(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) != 0);
    CHECK_EQ((can & KVMEM_CUDA_DMA_BUF) != 0, attribute(device, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED) != 0);
    CHECK_EQ((can & KVMEM_CUDA_MEMORY_POOLS) != 0,
             attribute(device, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) != 0);
    CHECK_EQ((can & KVMEM_CUDA_HOST_NUMA_VMM) != 0,
             attribute(device, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) != 0);
    CHECK_EQ((can & KVMEM_CUDA_POSIX_FD) != 0, can_export(device, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    CHECK_EQ((can & KVMEM_CUDA_FABRIC) != 0, can_export(device, CU_MEM_HANDLE_TYPE_FABRIC));
    CHECK_EQ((can & KVMEM_CUDA_BATCH_COPIES) != 0, driver_symbol("cuMemcpyBatchAsync") != NULL);
    CHECK_EQ(can >> 8, 0);
}

TEST_EACH_DEVICE(a_device_says_how_large_its_processor_is) {
    const kvmem_cuda_device_info info = device_info(device);
    CHECK(info.compute_capability_major > 0);
    CHECK(info.multiprocessors > 0);
    CHECK_EQ(info.compute_capability_major, attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
    CHECK_EQ(info.compute_capability_minor, attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
    CHECK_EQ(info.multiprocessors, attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
}

/* Of memory that stays in the process. */
static size_t granularity(int device, CUmemAllocationGranularity_flags which) {
    const CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
    };
    size_t bytes = 0;
    CU(cuMemGetAllocationGranularity(&bytes, &properties, which));
    return bytes;
}

TEST_EACH_DEVICE(a_device_says_its_granularities) {
    const kvmem_cuda_device_info info = device_info(device);
    CHECK(info.capabilities & KVMEM_CUDA_VMM);
    CHECK_EQ(info.minimum_granularity, granularity(device, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK_EQ(info.recommended_granularity, granularity(device, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
}

TEST_EACH_DEVICE(a_device_says_its_numa_node) {
    int node = -1;
    if (driver_get()->cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device) != CUDA_SUCCESS) {
        node = -1;
    }
    CHECK_EQ(device_info(device).numa_node, node);
}

/* Ordinals around those there are. */
static const int32_t *missing_devices(size_t *count) {
    static int32_t missing[4];
    missing[0] = driver_devices();
    missing[1] = -1;
    missing[2] = INT32_MAX;
    missing[3] = INT32_MIN;
    *count = NUM(missing);
    return missing;
}

TEST(devices_that_are_not_there_are_refused) {
    size_t count = 0;
    const int32_t *missing = missing_devices(&count);
    for (size_t i = 0; i < count; i++) {
        char text[16];
        snprintf(text, sizeof(text), "%d", (int)missing[i]);
        kvmem_cuda_device_info info;
        memset(&info, 0xEE, sizeof(info));
        EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_RANGE, text, kvmem_cuda_get_device_info(missing[i], &info, ERR));
        CHECK_FILLED(&info, 0xEE, sizeof(info));
    }
}

TEST(access_to_or_from_a_device_that_is_not_there_is_refused) {
    size_t count = 0;
    const int32_t *missing = missing_devices(&count);
    for (size_t i = 0; i < count; i++) {
        char text[16];
        snprintf(text, sizeof(text), "%d", (int)missing[i]);
        for (int untouched = 0; untouched < 2; untouched++) {
            bool can = untouched != 0;
            EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_RANGE, text, kvmem_cuda_can_access(missing[i], 0, &can, ERR));
            EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_RANGE, text, kvmem_cuda_can_access(0, missing[i], &can, ERR));
            CHECK_EQ(can, untouched);
        }
    }
}

TEST_EACH_DEVICE(a_device_reaches_what_the_driver_says) {
    uint64_t accessible = 0;
    for (int owner = 0; owner < driver_devices(); owner++) {
        int expected = device == owner;
        if (device != owner) {
            CU(cuDeviceCanAccessPeer(&expected, device, owner));
        }
        bool can = !expected;
        EXPECT_OK(kvmem_cuda_can_access(device, owner, &can, ERR));
        CHECK_EQ(can, expected);
        accessible |= (uint64_t)can << owner;
    }
    CHECK_EQ(device_info(device).can_access, accessible);
}

TEST(asking_creates_no_context) {
    for (int device = 0; device < driver_devices(); device++) {
        CHECK(!has_primary_context(device));
        device_info(device);
        GET(bool, can, kvmem_cuda_can_access, device, 0);
    }
    for (int device = 0; device < driver_devices(); device++) {
        CHECK(!has_primary_context(device));
    }
}
