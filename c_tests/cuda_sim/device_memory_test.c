// SPDX-License-Identifier: Apache-2.0
// Memory of cuMemAlloc: ranges, sizes, freeing; the host cannot access it.
#include "driver_test.h"

TEST(allocation_has_its_exact_range) {
    size_t size = 0;
    OPEN_DEVICE(0);
    OWN_MEMORY(address, 1000, 1);
    CHECK_EQ(address % 256, 0);
    CU_GET(CUdeviceptr, base, cuMemGetAddressRange_v2(&base, &size, address + 999));
    CHECK_EQ(base, address);
    CHECK_EQ(size, 1000);
    CU(cuMemGetAddressRange_v2(NULL, NULL, address));
    CU_EXPECT(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange_v2(&base, &size, address + 1000));
    CU_EXPECT(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange_v2(&base, &size, ADDRESS(&base)));
    CU_EXPECT(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange_v2(&base, &size, 0));
}

TEST(the_host_cannot_access_device_memory) {
    OPEN_DEVICE(0);
    OWN_MEMORY(address, 4096, 1);
    check_inaccessible(address);
    check_device_filled(address, 1, 4096);
}

TEST(sizes_out_of_range_fail) {
    CUdeviceptr address = 0;
    size_t total = 0;
    OPEN_DEVICE(0);
    CU_GET(size_t, free, cuMemGetInfo_v2(&free, &total));
    CHECK(free <= total);
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(&address, 0));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(NULL, 1));
    CU_EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&address, total + 1));
    CU_EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&address, (size_t)1 << 62));
}

TEST(free_memory_is_reported) {
    OPEN_DEVICE(0);
    CU_GET(size_t, before, cuMemGetInfo_v2(&before, NULL));
    const CUdeviceptr address = allocate_filled(64 * MIB, 1);
    CU_GET(size_t, during, cuMemGetInfo_v2(&during, NULL));
    CHECK_EQ(before - during, 64 * MIB);
    CU(cuMemFree_v2(address));
    CU_GET(size_t, after, cuMemGetInfo_v2(&after, NULL));
    CHECK_EQ(after, before);
}

TEST(only_the_start_of_an_allocation_is_freed_and_once) {
    unsigned char local = 0;
    OPEN_DEVICE(0);
    const CUdeviceptr address = allocate_filled(4096, 1);
    OWN_MAPPING(mapped, 0, GRANULE);
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(address + 1));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(address + 512));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(ADDRESS(&local)));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(mapped));
    CU(cuMemFree_v2(0));
    CU(cuMemFree_v2(address));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(address));
}

TEST(freeing_does_not_need_the_context_of_the_memory) {
    OPEN_DEVICE(0);
    const CUdeviceptr one = allocate_filled(4096, 1);
    const CUdeviceptr two = allocate_filled(4096, 2);
    CU_GET(CUcontext, other, cuDevicePrimaryCtxRetain(&other, 1));
    CU(cuCtxPushCurrent_v2(other));
    CU(cuMemFree_v2(one)); /* with the context of another device */
    CU(cuCtxPopCurrent_v2(NULL));
    CU(cuDevicePrimaryCtxRelease_v2(1));
    CU_GET(CUcontext, popped, cuCtxPopCurrent_v2(&popped));
    CU(cuMemFree_v2(two)); /* without a context */
    CU(cuCtxPushCurrent_v2(popped));
}
