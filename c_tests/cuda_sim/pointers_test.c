// SPDX-License-Identifier: Apache-2.0
// Attributes of pointers to device, managed, mapped, page-locked and unknown memory.
#include "driver_test.h"

static uint64_t get(CUpointer_attribute attribute, CUdeviceptr address) {
    CU_GET(uint64_t, value, cuPointerGetAttribute(&value, attribute, address));
    return value;
}

static int get_int(CUpointer_attribute attribute, CUdeviceptr address) {
    int value = -1; /* all its bytes are written */
    CU(cuPointerGetAttribute(&value, attribute, address));
    return value;
}

/* A flag has the size of an int, not of a bool. */
static bool get_flag(CUpointer_attribute attribute, CUdeviceptr address) {
    return get_int(attribute, address) != 0;
}

/* The value is not checked, because some failures set it to 0 and others leave it unchanged. */
static void expect_invalid(CUpointer_attribute attribute, CUdeviceptr address) {
    uint64_t value = 0;
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&value, attribute, address));
}

TEST(device_memory) {
    const CUcontext context = open_device(1);
    const CUdeviceptr address = allocate_filled(1000, 1);
    CHECK_EQ(get_int(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 3), CU_MEMORYTYPE_DEVICE);
    CHECK_EQ(get_int(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address + 3), 1);
    CHECK_EQ(get(CU_POINTER_ATTRIBUTE_CONTEXT, address), ADDRESS(context));
    CHECK_EQ(get(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address + 3), address + 3);
    CHECK_EQ(get(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address + 3), address);
    CHECK_EQ(get(CU_POINTER_ATTRIBUTE_RANGE_SIZE, address + 3), 1000);
    CHECK_EQ(get(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, address), 0);
    CHECK_EQ(get_int(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, address), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK(get_flag(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address));
    CHECK(get_flag(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, address));
    CHECK(get_flag(CU_POINTER_ATTRIBUTE_MAPPED, address));
    CHECK(!get_flag(CU_POINTER_ATTRIBUTE_IS_MANAGED, address));
    expect_invalid(CU_POINTER_ATTRIBUTE_HOST_POINTER, address);
    expect_invalid(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 1000);
    expect_invalid((CUpointer_attribute)999, address);
    CU(cuMemFree_v2(address));
    expect_invalid(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
    close_device(1);
}

TEST(buffers_have_unique_numbers) {
    OPEN_DEVICE(0);
    const CUdeviceptr first = allocate_filled(64, 1);
    OWN_MEMORY(second, 64, 1);
    const uint64_t number = get(CU_POINTER_ATTRIBUTE_BUFFER_ID, first);
    CHECK_EQ(get(CU_POINTER_ATTRIBUTE_BUFFER_ID, first + 63), number);
    CHECK(get(CU_POINTER_ATTRIBUTE_BUFFER_ID, second) != number);
    CU(cuMemFree_v2(first));
    OWN_MEMORY(third, 64, 1);
    CHECK(get(CU_POINTER_ATTRIBUTE_BUFFER_ID, third) != number); /* also at the same address */
}

TEST(managed_memory) {
    OPEN_DEVICE(0);
    CU_GET(CUdeviceptr, address, cuMemAllocManaged(&address, 4096, CU_MEM_ATTACH_GLOBAL));
    CHECK(get_flag(CU_POINTER_ATTRIBUTE_IS_MANAGED, address + 4095));
    CHECK_EQ(get(CU_POINTER_ATTRIBUTE_HOST_POINTER, address + 3), address + 3);
    *(volatile char *)(uintptr_t)address = 1; /* the host can access it */
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAllocManaged(&address, 0, CU_MEM_ATTACH_GLOBAL));
    CU(cuMemFree_v2(address));
}

TEST(mapped_memory) {
    const CUmemAccessDesc none = access_for(0, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    const CUmemAccessDesc all = access_for(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OPEN_DEVICE(0);
    OWN_HANDLE(handle, 0, GRANULE);
    const CUdeviceptr start = reserve(4 * GRANULE);
    const CUdeviceptr address = start + GRANULE;
    CU(cuMemMap(address, GRANULE, 0, handle, 0));
    CU(cuMemSetAccess(address, GRANULE, &all, 1));
    CHECK_EQ(get_int(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address), CU_MEMORYTYPE_DEVICE);
    CHECK_EQ(get_int(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address), 0);
    CHECK_EQ(get(CU_POINTER_ATTRIBUTE_CONTEXT, address), 0);
    CHECK_EQ(get(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address), start); /* of the reservation */
    CHECK_EQ(get(CU_POINTER_ATTRIBUTE_RANGE_SIZE, address), 4 * GRANULE);
    CHECK_EQ(get(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, address), 1);
    CHECK(!get_flag(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address));
    CHECK(!get_flag(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, address)); /* it was not requested */
    CU(cuMemSetAccess(address, GRANULE, &none, 1));
    CHECK_EQ(get_int(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, address), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    expect_invalid(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address);
    expect_invalid(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, start); /* a hole */
    unmap_and_free(start, 4 * GRANULE);
}

TEST(page_locked_memory) {
    const CUcontext context = open_device(1);
    CU_GET(void *, host, cuMemHostAlloc(&host, 1000, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    const CUdeviceptr address = ADDRESS(host);
    CHECK_EQ(get_int(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address), CU_MEMORYTYPE_HOST);
    CHECK_EQ(get_int(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address), 1);
    CHECK_EQ(get(CU_POINTER_ATTRIBUTE_CONTEXT, address), ADDRESS(context));
    CHECK_EQ(get(CU_POINTER_ATTRIBUTE_HOST_POINTER, address + 3), address + 3);
    CHECK_EQ(get(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address + 3), address + 3);
    CHECK_EQ(get(CU_POINTER_ATTRIBUTE_RANGE_SIZE, address), 1000);
    CU(cuMemFreeHost(host));
    expect_invalid(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
    close_device(1);
}

TEST(getting_several_attributes_succeeds_for_every_pointer) {
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                        CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
    int type = 77;
    int ordinal = 77;
    CUdeviceptr pointer = 77;
    void *values[] = {&type, &ordinal, &pointer};
    OPEN_DEVICE(0);
    OWN_MEMORY(address, 64, 1);
    CU(cuPointerGetAttributes(NUM(attributes), attributes, values, address));
    CHECK_EQ(type, CU_MEMORYTYPE_DEVICE);
    CHECK_EQ(ordinal, 0);
    CHECK_EQ(pointer, address);
    CU(cuPointerGetAttributes(NUM(attributes), attributes, values, ADDRESS(&type)));
    CHECK_EQ(type, 0);
    CHECK_EQ(ordinal, -2);
    CHECK_EQ(pointer, 0);
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttributes(0, attributes, values, address));
    attributes[1] = (CUpointer_attribute)999;
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE,
              cuPointerGetAttributes(NUM(attributes), attributes, values, address));
}

TEST(unknown_memory) {
    unsigned char local = 0;
    CU(cuInit(0));
    expect_invalid(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ADDRESS(&local));
    expect_invalid(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0);
}
