// SPDX-License-Identifier: Apache-2.0
// Memory handles: valid properties, the memory of the device, reference counts.
#include "driver_test.h"

TEST(granularity_is_2_mib) {
    const CUmemAllocationProp prop = device_prop(0);
    size_t granularity = 0;
    CU(cuInit(0));
    CU(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK_EQ(granularity, GRANULE);
    CU(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    CHECK_EQ(granularity, GRANULE);
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE,
              cuMemGetAllocationGranularity(&granularity, &prop, (CUmemAllocationGranularity_flags)7));
}

static void expect_failure(CUresult expected, size_t size, const CUmemAllocationProp *prop) {
    CUmemGenericAllocationHandle handle = 77;
    CU_EXPECT(expected, cuMemCreate(&handle, size, prop, 0));
    CHECK_EQ(handle, 77);
}

TEST(sizes_out_of_range_fail) {
    const CUmemAllocationProp prop = device_prop(0);
    CUmemGenericAllocationHandle handle = 0;
    NOTHING_LEFT;
    CU_GET(size_t, total, cuDeviceTotalMem_v2(&total, 0));
    expect_failure(CUDA_ERROR_INVALID_VALUE, 0, &prop);
    expect_failure(CUDA_ERROR_INVALID_VALUE, GRANULE / 2, &prop);
    expect_failure(CUDA_ERROR_INVALID_VALUE, GRANULE + 4096, &prop);
    expect_failure(CUDA_ERROR_OUT_OF_MEMORY, (total / GRANULE + 1) * GRANULE, &prop);
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemCreate(NULL, GRANULE, &prop, 0));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, GRANULE, NULL, 0));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, GRANULE, &prop, 1));
}

TEST(properties_are_checked) {
    NOTHING_LEFT;
    CUmemAllocationProp prop = WITH(device_prop(0), it.type = CU_MEM_ALLOCATION_TYPE_INVALID);
    expect_failure(CUDA_ERROR_INVALID_VALUE, GRANULE, &prop);
    prop = device_prop(99);
    expect_failure(CUDA_ERROR_INVALID_DEVICE, GRANULE, &prop);
    prop = device_prop(0);
    prop.location.type = CU_MEM_LOCATION_TYPE_INVALID;
    expect_failure(CUDA_ERROR_INVALID_VALUE, GRANULE, &prop);
    prop.location.type = CU_MEM_LOCATION_TYPE_HOST;
    expect_failure(CUDA_ERROR_INVALID_VALUE, GRANULE, &prop);
    prop.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST_NUMA, 50};
    expect_failure(CUDA_ERROR_INVALID_VALUE, GRANULE, &prop);
    prop = device_prop(0);
    prop.requestedHandleTypes = 2; /* of Windows */
    expect_failure(CUDA_ERROR_INVALID_VALUE, GRANULE, &prop);
    prop = device_prop(0);
    prop.allocFlags.usage = 7;
    expect_failure(CUDA_ERROR_INVALID_VALUE, GRANULE, &prop);
    prop = device_prop(0);
    prop.allocFlags.reserved[0] = 1;
    expect_failure(CUDA_ERROR_INVALID_VALUE, GRANULE, &prop);
}

TEST(fabric_handles_fail_although_the_attribute_is_set) {
    int is_supported = 0;
    CUmemAllocationProp prop = device_prop(0);
    CU(cuInit(0));
    CU(cuDeviceGetAttribute(&is_supported, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 0));
    CHECK_EQ(is_supported, 1);
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    expect_failure(CUDA_ERROR_NOT_PERMITTED, GRANULE, &prop);
    prop.requestedHandleTypes |= CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    expect_failure(CUDA_ERROR_NOT_PERMITTED, GRANULE, &prop);
}

TEST(properties_of_a_handle_are_returned) {
    CUmemAllocationProp prop = device_prop(1);
    NOTHING_LEFT;
    prop.allocFlags.gpuDirectRDMACapable = 1;
    CU_GET(CUmemGenericAllocationHandle, handle, cuMemCreate(&handle, GRANULE, &prop, 0));
    CU_GET(CUmemAllocationProp, kept, cuMemGetAllocationPropertiesFromHandle(&kept, handle));
    CHECK_EQ(kept.type, prop.type);
    CHECK_EQ(kept.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
    CHECK_EQ(kept.location.id, 1);
    CHECK_EQ(kept.requestedHandleTypes, prop.requestedHandleTypes);
    CHECK_EQ(kept.allocFlags.gpuDirectRDMACapable, 1);
    CU(cuMemRelease(handle));
}

TEST(handles_are_reference_counted) {
    OPEN_DEVICE(0);
    OWN_MAPPING(address, 0, GRANULE); /* the handle has been released */
    CU(cuMemsetD8_v2(address, 5, GRANULE));
    CU_GET(CUmemGenericAllocationHandle, again, cuMemRetainAllocationHandle(&again, POINTER(address + 5)));
    const CUmemGenericAllocationHandle first = again;
    CU(cuMemRetainAllocationHandle(&again, POINTER(address)));
    CHECK_EQ(again, first);
    CU(cuMemRelease(first));
    CU(cuMemRelease(first));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemRelease(first));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemRelease(0));
    check_device_filled(address, 5, GRANULE); /* the mapping keeps the memory alive */
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemRetainAllocationHandle(&again, &again));
}

TEST(memory_is_freed_when_released_and_unmapped) {
    OPEN_DEVICE(0);
    CU_GET(size_t, before, cuMemGetInfo_v2(&before, NULL));
    const CUdeviceptr address = map_fresh(0, 32 * MIB);
    CU_GET(size_t, free, cuMemGetInfo_v2(&free, NULL));
    CHECK_EQ(before - free, 32 * MIB);
    unmap_and_free(address, 32 * MIB);
    CU(cuMemGetInfo_v2(&free, NULL));
    CHECK_EQ(free, before);
}
