// SPDX-License-Identifier: Apache-2.0
// Information about the driver and its devices, compared with the driver's own.
#include "engine.h"
#include "caller_context.h"

CONTEXTS_END

static kvmem_cuda_device_info device_info(int device) {
    GET(kvmem_cuda_device_info, info, kvmem_cuda_get_device_info, device);
    return info;
}

TEST(version_and_device_count) {
    GET(kvmem_cuda_info, info, kvmem_cuda_get_info);
    CU_GET(int, version, cuDriverGetVersion(&version));
    CU_GET(int, count, cuDeviceGetCount(&count));
    CHECK(version >= 12000);
    CHECK_EQ(info.driver_version, version);
    CHECK_EQ(info.device_count, count);
}

TEST_EACH_DEVICE(name_uuid_and_memory) {
    const kvmem_cuda_device_info info = device_info(device);
    char name[sizeof(info.name)] = "";
    CU(cuDeviceGetName(name, sizeof(name), device));
    CU_GET(CUuuid, uuid, cuDeviceGetUuid_v2(&uuid, device));
    CU_GET(size_t, memory, cuDeviceTotalMem_v2(&memory, device));
    CHECK(name[0] != '\0');
    CHECK_STR(info.name, name);
    static const unsigned char zeros[sizeof(info.uuid)];
    CHECK(memcmp(info.uuid, zeros, sizeof(zeros)) != 0);
    CHECK_BYTES(info.uuid, uuid.bytes, sizeof(info.uuid));
    CHECK_EQ(info.total_memory, memory);
}

/* Returns the value of an attribute; 0 if the driver does not know it. */
static int attribute(int device, CUdevice_attribute which) {
    int value = 0;
    return driver_get()->cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS ? value : 0;
}

/* Returns whether memory of a device can be exported as a handle of this type, by exporting some. */
static bool can_export(int device, CUmemAllocationHandleType type) {
    const CUmemAllocationProp properties = properties_on(device, type);
    const driver *driver = driver_get();
    CUmemGenericAllocationHandle memory = 0;
    size_t granule = 0;
    const CUmemAllocationGranularity_flags least = CU_MEM_ALLOC_GRANULARITY_MINIMUM;
    if (driver->cuMemGetAllocationGranularity(&granule, &properties, least) != CUDA_SUCCESS ||
        driver->cuMemCreate(&memory, granule, &properties, 0) != CUDA_SUCCESS) {
        return false;
    }
    union {
        int fd;
        unsigned char fabric[64];
    } handle;
    const bool exported = driver->cuMemExportToShareableHandle(&handle, memory, type, 0) == CUDA_SUCCESS;
    if (exported && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) close(handle.fd);
    CU(cuMemRelease(memory));
    return exported;
}

TEST_EACH_DEVICE(capabilities) {
    static const struct {
        uint64_t capability;
        CUdevice_attribute attribute;
    } attributes[] = {
        {KVMEM_CUDA_VMM, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED},
        {KVMEM_CUDA_RDMA_WITH_VMM, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED},
        {KVMEM_CUDA_DMA_BUF, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED},
        {KVMEM_CUDA_MEMORY_POOLS, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED},
        {KVMEM_CUDA_HOST_NUMA_VMM, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED},
    };
    const uint64_t can = device_info(device).capabilities;
    for (size_t i = 0; i < NUM(attributes); i++)
        CHECK_EQ((can & attributes[i].capability) != 0, attribute(device, attributes[i].attribute) != 0);
    CHECK_EQ((can & KVMEM_CUDA_POSIX_FD) != 0, can_export(device, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    CHECK_EQ((can & KVMEM_CUDA_FABRIC) != 0, can_export(device, CU_MEM_HANDLE_TYPE_FABRIC));
    CHECK_EQ((can & KVMEM_CUDA_BATCH_COPIES) != 0, driver_symbol("cuMemcpyBatchAsync") != NULL);
    CHECK_EQ(can >> 8, 0);
}

TEST_EACH_DEVICE(compute_capability_and_multiprocessors) {
    const kvmem_cuda_device_info info = device_info(device);
    CHECK(info.compute_capability_major > 0);
    CHECK(info.multiprocessors > 0);
    CHECK_EQ(info.compute_capability_major, attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
    CHECK_EQ(info.compute_capability_minor, attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
    CHECK_EQ(info.multiprocessors, attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
}

/* Returns the granularity of memory that is not exported. */
static size_t granularity(int device, CUmemAllocationGranularity_flags which) {
    const CUmemAllocationProp properties = properties_on(device, CU_MEM_HANDLE_TYPE_NONE);
    CU_GET(size_t, bytes, cuMemGetAllocationGranularity(&bytes, &properties, which));
    return bytes;
}

TEST_EACH_DEVICE(granularities) {
    const kvmem_cuda_device_info info = device_info(device);
    CHECK(info.capabilities & KVMEM_CUDA_VMM);
    CHECK_EQ(info.minimum_granularity, granularity(device, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK_EQ(info.recommended_granularity, granularity(device, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
}

TEST_EACH_DEVICE(numa_node_of_a_device) {
    int node = -1;
    if (driver_get()->cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device) != CUDA_SUCCESS)
        node = -1;
    CHECK_EQ(device_info(device).numa_node, node);
}

TEST(missing_devices_are_rejected) {
    EACH_MISSING_DEVICE(missing) {
        kvmem_cuda_device_info info;
        memset(&info, 0xEE, sizeof(info));
        EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_RANGE, TEXT("%d", *missing),
                       kvmem_cuda_get_device_info(*missing, &info, ERR));
        CHECK_FILLED(&info, 0xEE, sizeof(info));
    }
}

TEST_EACH_DEVICE(accessible_devices_are_those_of_the_driver) {
    uint64_t accessible = 0;
    for (int owner = 0; owner < driver_devices(); owner++) {
        int expected = device == owner;
        if (device != owner) CU(cuDeviceCanAccessPeer(&expected, device, owner));
        accessible |= (uint64_t)expected << owner;
    }
    CHECK_EQ(device_info(device).can_access, accessible);
}

TEST(queries_create_no_context) {
    for (int device = 0; device < driver_devices(); device++) {
        CHECK(!has_primary_context(device));
        device_info(device);
    }
    for (int device = 0; device < driver_devices(); device++) CHECK(!has_primary_context(device));
}
