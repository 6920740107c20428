// SPDX-License-Identifier: Apache-2.0
// Page-locked host memory: allocated by the driver, or allocated by the program and registered.
#include "driver_test.h"

#include <sys/mman.h>

#define PORTABLE_AND_MAPPED (CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP)
#define PAGE ((size_t)4096)

static unsigned char *map_host(size_t size, int protection) {
    void *mapped = mmap(NULL, size, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapped != MAP_FAILED);
    return mapped;
}

static void registers(void *start, size_t size) {
    CU(cuMemHostRegister_v2(start, size, PORTABLE_AND_MAPPED));
}

static void expect_failure(CUresult expected, void *start, size_t size) {
    CU_EXPECT(expected, cuMemHostRegister_v2(start, size, PORTABLE_AND_MAPPED));
}

TEST(allocations_are_host_memory) {
    void *host = &host;
    size_t size = 0;
    OPEN_DEVICE(0);
    CU(cuMemHostAlloc(&host, 0, 0));
    CHECK(host == NULL);
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostAlloc(&host, 1000, 0x100));
    CU(cuMemHostAlloc(&host, 1000, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    ((unsigned char *)host)[999] = 7;
    CU_GET(CUdeviceptr, base, cuMemGetAddressRange_v2(&base, &size, ADDRESS(host) + 5));
    CHECK_EQ(base, ADDRESS(host));
    CHECK_EQ(size, 1000);
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostUnregister(host));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(ADDRESS(host)));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost((char *)host + 1));
    CU(cuMemFreeHost(host));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(host));
    CU(cuMemFreeHost(NULL));
}

TEST(only_mapped_host_memory_is_registered) {
    unsigned char *host = map_host(4 * MIB, PROT_READ | PROT_WRITE);
    unsigned char *inaccessible = map_host(MIB, PROT_NONE);
    OPEN_DEVICE(0);
    OWN_MEMORY(device, MIB, 1);
    CU_GET(void *, allocated, cuMemHostAlloc(&allocated, MIB, 0));
    CHECK_EQ(munmap(host + MIB, MIB), 0);
    expect_failure(CUDA_ERROR_INVALID_VALUE, NULL, MIB);
    expect_failure(CUDA_ERROR_INVALID_VALUE, host, 0);
    expect_failure(CUDA_ERROR_INVALID_VALUE, host, 3 * MIB); /* with a hole */
    expect_failure(CUDA_ERROR_INVALID_VALUE, inaccessible, MIB);
    expect_failure(CUDA_ERROR_INVALID_VALUE, POINTER(device), MIB);
    expect_failure(CUDA_ERROR_INVALID_VALUE, allocated, MIB);
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2(host, MIB, 0x100));
    CU(cuMemFreeHost(allocated));
    munmap(host, MIB);
    munmap(host + 2 * MIB, 2 * MIB);
    munmap(inaccessible, MIB);
}

TEST(a_byte_is_registered_once) {
    unsigned char *host = map_host(4 * MIB, PROT_READ | PROT_WRITE);
    const CUresult again = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    OPEN_DEVICE(0);
    registers(host + MIB, MIB);
    expect_failure(again, host + MIB, MIB);
    expect_failure(again, host, 4 * MIB);
    expect_failure(again, host + MIB + MIB / 2, MIB);
    expect_failure(again, host + MIB / 2, MIB);
    expect_failure(again, host + MIB + PAGE, PAGE);
    registers(host + 2 * MIB, MIB); /* adjacent to it */
    registers(host + 100, PAGE);
    expect_failure(again, host + PAGE, PAGE);
    registers(host + 2 * PAGE + 100, 64);
    registers(host + 2 * PAGE, 64); /* other bytes of the same page */
    CU(cuMemHostUnregister(host + MIB));
    CU(cuMemHostUnregister(host + 2 * MIB));
    CU(cuMemHostUnregister(host + 100));
    CU(cuMemHostUnregister(host + 2 * PAGE + 100));
    CU(cuMemHostUnregister(host + 2 * PAGE));
    registers(host, 4 * MIB);
    CU(cuMemHostUnregister(host));
    munmap(host, 4 * MIB);
}

TEST(only_the_start_of_a_registration_is_unregistered_and_once) {
    unsigned char *host = map_host(MIB, PROT_READ | PROT_WRITE);
    OPEN_DEVICE(0);
    OWN_MEMORY(device, 64, 1);
    registers(host, MIB);
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostUnregister(NULL));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostUnregister(host + PAGE));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostUnregister(POINTER(device)));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(host));
    CU_GET(CUcontext, popped, cuCtxPopCurrent_v2(&popped));
    CU(cuMemHostUnregister(host)); /* needs no context */
    CU(cuCtxPushCurrent_v2(popped));
    CU_EXPECT(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(host));
    munmap(host, MIB);
}

TEST(registered_memory_has_the_same_address_on_the_device) {
    unsigned char *host = map_host(MIB, PROT_READ | PROT_WRITE);
    CUdeviceptr device = 0;
    OPEN_DEVICE(0);
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer_v2(&device, host, 0));
    registers(host, MIB);
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer_v2(&device, host, 1));
    CHECK_EQ(device, 0);
    CU(cuMemHostGetDevicePointer_v2(&device, host + 5, 0));
    CHECK_EQ(device, ADDRESS(host) + 5);
    CU(cuMemsetD8_v2(device, 7, 64));
    CU(cuCtxSynchronize());
    CHECK_FILLED(host + 5, 7, 64);
    CU(cuMemHostUnregister(host));
    munmap(host, MIB);
}

TEST(registrations_end_with_their_context) {
    unsigned char *host = map_host(MIB, PROT_READ | PROT_WRITE);
    open_device(0);
    registers(host, MIB);
    CU(cuCtxPopCurrent_v2(NULL));
    CU(cuDevicePrimaryCtxRelease_v2(0));
    check_nothing_left();
    open_device(0);
    registers(host, MIB);
    CU(cuMemHostUnregister(host));
    munmap(host, MIB);
    close_device(0);
}
