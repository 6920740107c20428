// SPDX-License-Identifier: Apache-2.0
// Reserving, mapping and unmapping; access per device, which every copy checks.
#include "driver_test.h"

TEST(reservations_are_aligned_and_freed_whole) {
    CUdeviceptr address = 0;
    NOTHING_LEFT;
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&address, 0, 0, 0, 0));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&address, GRANULE / 2, 0, 0, 0));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&address, GRANULE, 3 * MIB, 0, 0));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&address, GRANULE, 0, 0, 1));
    CU_EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAddressReserve(&address, (size_t)1 << 60, 0, 0, 0));
    CU(cuMemAddressReserve(&address, 4 * MIB, 64 * MIB, 0, 0));
    CHECK_EQ(address % (64 * MIB), 0);
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(address, 2 * MIB));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(address + 2 * MIB, 2 * MIB));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(address, 8 * MIB));
    check_inaccessible(address);
    CU(cuMemAddressFree(address, 4 * MIB));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(address, 4 * MIB));
}

TEST(a_handle_is_mapped_whole_and_once) {
    NOTHING_LEFT;
    const CUdeviceptr address = reserve(16 * MIB);
    OWN_HANDLE(handle, 0, 4 * MIB);
    OWN_HANDLE(other, 0, 4 * MIB);
    CU_EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemMap(address, 2 * MIB, 0, handle, 0));
    CU_EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemMap(address, 2 * MIB, 2 * MIB, handle, 0));
    CU_EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemMap(address, 8 * MIB, 0, handle, 0));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemMap(address + MIB, 4 * MIB, 0, handle, 0));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemMap(address, 0, 0, handle, 0));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemMap(address, 4 * MIB, 0, handle, 1));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemMap(0, 4 * MIB, 0, handle, 0));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemMap(address + 32 * MIB, 4 * MIB, 0, handle, 0));
    CU(cuMemMap(address, 4 * MIB, 0, handle, 0));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemMap(address, 4 * MIB, 0, other, 0));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemMap(address + 2 * MIB, 4 * MIB, 0, other, 0));
    CU(cuMemMap(address + 8 * MIB, 4 * MIB, 0, handle, 0)); /* the same bytes at a second address */
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(address, 16 * MIB));
    CU(cuMemUnmap(address, 4 * MIB));
    CU(cuMemUnmap(address + 8 * MIB, 4 * MIB));
    CU(cuMemAddressFree(address, 16 * MIB));
}

/* Maps two adjacent handles, of 4 and 2 MiB, in a reservation of 8 MiB. */
static CUdeviceptr map_two(void) {
    const CUdeviceptr address = reserve(8 * MIB);
    const CUmemGenericAllocationHandle four = create_handle(0, 4 * MIB);
    const CUmemGenericAllocationHandle two = create_handle(0, 2 * MIB);
    CU(cuMemMap(address, 4 * MIB, 0, four, 0));
    CU(cuMemMap(address + 4 * MIB, 2 * MIB, 0, two, 0));
    CU(cuMemRelease(four));
    CU(cuMemRelease(two));
    return address;
}

TEST(a_mapping_is_unmapped_whole) {
    NOTHING_LEFT;
    const CUdeviceptr address = map_two();
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(address, 2 * MIB));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(address + 2 * MIB, 2 * MIB));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(address + 2 * MIB, 4 * MIB));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(address, 0));
    CU(cuMemUnmap(address + 6 * MIB, 2 * MIB)); /* nothing is mapped there */
    CU(cuMemUnmap(address, 8 * MIB));           /* two mappings and a hole */
    CU(cuMemUnmap(address, 8 * MIB));           /* nothing is mapped */
    CU(cuMemAddressFree(address, 8 * MIB));
}

static CUmemAccess_flags access_at(CUdeviceptr address, CUdevice device) {
    const CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    unsigned long long flags = 0;
    CU(cuMemGetAccess(&flags, &location, address));
    return (CUmemAccess_flags)flags;
}

TEST(mappings_are_inaccessible_until_access_is_set) {
    CUdeviceptr base = 0;
    size_t size = 0;
    unsigned char local[64];
    OPEN_DEVICE(0);
    OWN_MAPPED(address, map_two(), 8 * MIB);
    CHECK_EQ(access_at(address, 0), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(address, 1, 64));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(local, address, sizeof(local)));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(address, local, sizeof(local)));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy(ADDRESS(local), address, sizeof(local)));
    CU_EXPECT(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange_v2(&base, &size, address));
}

TEST(one_access_covers_many_mappings) {
    const CUmemAccessDesc access = access_for(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUdeviceptr base = 0;
    size_t size = 0;
    OPEN_DEVICE(0);
    OWN_MAPPED(address, map_two(), 8 * MIB);
    CU(cuMemSetAccess(address, 6 * MIB, &access, 1));
    CU(cuMemsetD8_v2(address, 9, 6 * MIB)); /* across both */
    check_device_filled(address + 3 * MIB, 9, 2 * MIB);
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(address, 9, 6 * MIB + 1));
    CU(cuMemGetAddressRange_v2(&base, &size, address + 5 * MIB)); /* the mapping, not the reservation */
    CHECK_EQ(base, address + 4 * MIB);
    CHECK_EQ(size, 2 * MIB);
    check_inaccessible(address);
}

static void expect_failure(CUresult expected, CUdeviceptr address, size_t size, CUmemLocationType type,
                           int id,
                           int flags) {
    const CUmemAccessDesc access = {{type, id}, (CUmemAccess_flags)flags};
    CU_EXPECT(expected, cuMemSetAccess(address, size, &access, 1));
}

TEST(access_is_checked) {
    unsigned long long flags = 0;
    const CUmemLocation unknown = {CU_MEM_LOCATION_TYPE_DEVICE, 99};
    const CUmemAccessDesc access = access_for(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    NOTHING_LEFT;
    OWN_MAPPED(address, map_two(), 8 * MIB);
    const CUmemLocationType device = CU_MEM_LOCATION_TYPE_DEVICE;
    expect_failure(CUDA_ERROR_INVALID_VALUE, address, 2 * MIB, device, 0, 3); /* half a mapping */
    expect_failure(CUDA_ERROR_INVALID_VALUE, address + 2 * MIB, 2 * MIB, device, 0, 3);
    expect_failure(CUDA_ERROR_INVALID_VALUE, address, 8 * MIB, device, 0, 3); /* with a hole */
    expect_failure(CUDA_ERROR_INVALID_VALUE, address + 6 * MIB, 2 * MIB, device, 0, 3);
    expect_failure(CUDA_ERROR_INVALID_VALUE, address, 0, device, 0, 3);
    expect_failure(CUDA_ERROR_INVALID_VALUE, address, 6 * MIB, device, 0, 2);
    expect_failure(CUDA_ERROR_INVALID_VALUE, address, 6 * MIB, device, 99, 3);
    expect_failure(CUDA_ERROR_INVALID_VALUE, address, 6 * MIB, CU_MEM_LOCATION_TYPE_INVALID, 0, 3);
    expect_failure(CUDA_ERROR_NOT_SUPPORTED, address, 6 * MIB, CU_MEM_LOCATION_TYPE_HOST, 0, 3);
    expect_failure(CUDA_ERROR_NOT_SUPPORTED, address, 6 * MIB, CU_MEM_LOCATION_TYPE_HOST_NUMA, 0, 3);
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(address, 6 * MIB, &access, 0));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(address, 6 * MIB, NULL, 1));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemGetAccess(&flags, &access.location, address + 6 * MIB));
    CU_EXPECT(CUDA_ERROR_INVALID_DEVICE, cuMemGetAccess(&flags, &unknown, address));
}

TEST(access_is_set_for_all_devices_or_none) {
    const CUmemAccessDesc both[] = {
        access_for(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
        access_for(99, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
    };
    CU(cuInit(0));
    OWN_MAPPED(address, map_two(), 8 * MIB);
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(address, 6 * MIB, both, NUM(both)));
    CHECK_EQ(access_at(address, 0), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CHECK_EQ(access_at(address + 4 * MIB, 0), CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

TEST(read_only_mappings_are_not_written) {
    unsigned char local[64];
    const CUmemAccessDesc read = access_for(0, CU_MEM_ACCESS_FLAGS_PROT_READ);
    const CUmemAccessDesc none = access_for(0, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    OPEN_DEVICE(0);
    OWN_MAPPING(address, 0, GRANULE);
    const CUdeviceptr source = allocate_filled(64, 3);
    CU(cuMemsetD8_v2(address, 4, GRANULE));
    CU(cuMemSetAccess(address, GRANULE, &read, 1));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(address, 1, 64));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD_v2(address, source, 64));
    CU(cuMemcpyDtoD_v2(source, address, 64));
    check_device_filled(source, 4, 64);
    CU(cuMemSetAccess(address, GRANULE, &none, 1));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(local, address, sizeof(local)));
    CHECK_EQ(access_at(address, 0), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CU(cuMemFree_v2(source));
}

TEST(each_device_has_its_own_access) {
    const CUmemAccessDesc peer = access_for(1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    const CUmemAccessDesc none = access_for(0, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    unsigned char local[64];
    OPEN_DEVICE(0);
    OWN_MAPPING(address, 0, GRANULE);
    CU(cuMemsetD8_v2(address, 4, GRANULE));
    CU(cuMemSetAccess(address, GRANULE, &peer, 1));
    CU(cuMemSetAccess(address, GRANULE, &none, 1)); /* the device of the memory has no access */
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(local, address, sizeof(local)));
    CU_GET(CUcontext, other, cuDevicePrimaryCtxRetain(&other, 1));
    CU(cuCtxPushCurrent_v2(other));
    check_device_filled(address, 4, 64);
    CU(cuMemsetD8_v2(address, 5, 64));
    CU(cuCtxPopCurrent_v2(NULL));
    CU(cuDevicePrimaryCtxRelease_v2(1));
}

TEST(the_host_can_get_access_to_host_memory) {
    CUmemAllocationProp prop = device_prop(0);
    prop.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
    const CUmemAccessDesc both[] = {
        access_for(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
        {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
    };
    OPEN_DEVICE(0);
    CU_GET(CUmemGenericAllocationHandle, handle, cuMemCreate(&handle, GRANULE, &prop, 0));
    const CUdeviceptr address = reserve(GRANULE);
    CU(cuMemMap(address, GRANULE, 0, handle, 0));
    CU(cuMemRelease(handle));
    check_inaccessible(address);
    CU(cuMemSetAccess(address, GRANULE, both, NUM(both)));
    CU(cuMemsetD8_v2(address, 6, GRANULE));
    CU(cuCtxSynchronize());
    CHECK_FILLED(POINTER(address), 6, GRANULE);
    unmap_and_free(address, GRANULE);
}
