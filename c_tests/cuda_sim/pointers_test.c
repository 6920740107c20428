// SPDX-License-Identifier: Apache-2.0
// What the driver says of a pointer: device, mapped, page-locked, or nothing it has heard of.
#include "driver_test.h"

static uint64_t ask(CUpointer_attribute attribute, CUdeviceptr address) {
    uint64_t answer = 0;
    CU(cuPointerGetAttribute(&answer, attribute, address));
    return answer;
}

static int ask_int(CUpointer_attribute attribute, CUdeviceptr address) {
    int answer = -1; /* all of it is written */
    CU(cuPointerGetAttribute(&answer, attribute, address));
    return answer;
}

/* A flag is as wide as an int, not as a bool. */
static bool ask_flag(CUpointer_attribute attribute, CUdeviceptr address) {
    return ask_int(attribute, address) != 0;
}

/* What it answers then is not told: some failures leave it, some set it to 0. */
static void refuses(CUpointer_attribute attribute, CUdeviceptr address) {
    uint64_t answer = 0;
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&answer, attribute, address));
}

TEST(device_memory) {
    const CUcontext context = open_device(1);
    const CUdeviceptr address = allocate_filled(1000, 1);
    CHECK_EQ(ask_int(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 3), CU_MEMORYTYPE_DEVICE);
    CHECK_EQ(ask_int(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address + 3), 1);
    CHECK_EQ(ask(CU_POINTER_ATTRIBUTE_CONTEXT, address), ADDRESS(context));
    CHECK_EQ(ask(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address + 3), address + 3);
    CHECK_EQ(ask(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address + 3), address);
    CHECK_EQ(ask(CU_POINTER_ATTRIBUTE_RANGE_SIZE, address + 3), 1000);
    CHECK_EQ(ask(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, address), 0);
    CHECK_EQ(ask_int(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, address), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK(ask_flag(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address));
    CHECK(ask_flag(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, address));
    CHECK(ask_flag(CU_POINTER_ATTRIBUTE_MAPPED, address));
    CHECK(!ask_flag(CU_POINTER_ATTRIBUTE_IS_MANAGED, address));
    refuses(CU_POINTER_ATTRIBUTE_HOST_POINTER, address);
    refuses(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 1000);
    refuses((CUpointer_attribute)999, address);
    CU(cuMemFree_v2(address));
    refuses(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
    close_device(1);
}

TEST(buffers_have_numbers_of_their_own) {
    OPEN_DEVICE(0);
    const CUdeviceptr first = allocate_filled(64, 1);
    OWN_MEMORY(second, 64, 1);
    const uint64_t number = ask(CU_POINTER_ATTRIBUTE_BUFFER_ID, first);
    CHECK_EQ(ask(CU_POINTER_ATTRIBUTE_BUFFER_ID, first + 63), number);
    CHECK(ask(CU_POINTER_ATTRIBUTE_BUFFER_ID, second) != number);
    CU(cuMemFree_v2(first));
    OWN_MEMORY(third, 64, 1);
    CHECK(ask(CU_POINTER_ATTRIBUTE_BUFFER_ID, third) != number); /* whatever its address */
}

TEST(managed_memory) {
    OPEN_DEVICE(0);
    CUdeviceptr address = 0;
    CU(cuMemAllocManaged(&address, 4096, CU_MEM_ATTACH_GLOBAL));
    CHECK(ask_flag(CU_POINTER_ATTRIBUTE_IS_MANAGED, address + 4095));
    CHECK_EQ(ask(CU_POINTER_ATTRIBUTE_HOST_POINTER, address + 3), address + 3);
    *(volatile char *)(uintptr_t)address = 1; /* the program touches it */
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
    CHECK_EQ(ask_int(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address), CU_MEMORYTYPE_DEVICE);
    CHECK_EQ(ask_int(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address), 0);
    CHECK_EQ(ask(CU_POINTER_ATTRIBUTE_CONTEXT, address), 0);
    CHECK_EQ(ask(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address), start); /* of the reservation */
    CHECK_EQ(ask(CU_POINTER_ATTRIBUTE_RANGE_SIZE, address), 4 * GRANULE);
    CHECK_EQ(ask(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, address), 1);
    CHECK(!ask_flag(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address));
    CHECK(!ask_flag(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, address)); /* not asked for */
    CU(cuMemSetAccess(address, GRANULE, &none, 1));
    CHECK_EQ(ask_int(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, address), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    refuses(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address);
    refuses(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, start); /* a hole */
    unmap_and_free(start, 4 * GRANULE);
}

TEST(page_locked_memory) {
    void *host = NULL;
    const CUcontext context = open_device(1);
    CU(cuMemHostAlloc(&host, 1000, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    const CUdeviceptr address = ADDRESS(host);
    CHECK_EQ(ask_int(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address), CU_MEMORYTYPE_HOST);
    CHECK_EQ(ask_int(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address), 1);
    CHECK_EQ(ask(CU_POINTER_ATTRIBUTE_CONTEXT, address), ADDRESS(context));
    CHECK_EQ(ask(CU_POINTER_ATTRIBUTE_HOST_POINTER, address + 3), address + 3);
    CHECK_EQ(ask(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address + 3), address + 3);
    CHECK_EQ(ask(CU_POINTER_ATTRIBUTE_RANGE_SIZE, address), 1000);
    CU(cuMemFreeHost(host));
    refuses(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
    close_device(1);
}

TEST(many_attributes_at_once_never_fail_for_a_pointer) {
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                        CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
    int type = 77;
    int ordinal = 77;
    CUdeviceptr pointer = 77;
    void *answers[] = {&type, &ordinal, &pointer};
    OPEN_DEVICE(0);
    OWN_MEMORY(address, 64, 1);
    CU(cuPointerGetAttributes(NUM(attributes), attributes, answers, address));
    CHECK_EQ(type, CU_MEMORYTYPE_DEVICE);
    CHECK_EQ(ordinal, 0);
    CHECK_EQ(pointer, address);
    CU(cuPointerGetAttributes(NUM(attributes), attributes, answers, ADDRESS(&type)));
    CHECK_EQ(type, 0);
    CHECK_EQ(ordinal, -2);
    CHECK_EQ(pointer, 0);
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttributes(0, attributes, answers, address));
    attributes[1] = (CUpointer_attribute)999;
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE,
              cuPointerGetAttributes(NUM(attributes), attributes, answers, address));
}

TEST(unknown_memory) {
    unsigned char local = 0;
    CU(cuInit(0));
    refuses(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ADDRESS(&local));
    refuses(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0);
}
