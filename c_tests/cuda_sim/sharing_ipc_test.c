// SPDX-License-Identifier: Apache-2.0
// Sharing memory between processes by legacy IPC handles.
#include "driver_test.h"

/* Large enough that a real driver does not place two of them in one allocation. */
#define SIZE ((size_t)4 * MIB)
#define FLAGS CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

enum { HANDLES = 1, READY, STOP };

/* Handles of two allocations, and of one that the owner has freed. */
typedef struct handles {
    CUipcMemHandle one, two, freed;
} handles;

static CUipcMemHandle handle_of(CUdeviceptr address) {
    CU_GET(CUipcMemHandle, handle, cuIpcGetMemHandle(&handle, address));
    return handle;
}

ROLE(be_owner) {
    OPEN_DEVICE(0);
    OWN_MEMORY(one, SIZE, 1);
    OWN_MEMORY(two, SIZE, 2);
    const CUdeviceptr gone = allocate_filled(SIZE, 3);
    const handles shared = {handle_of(one), handle_of(two), handle_of(gone)};
    CU(cuMemFree_v2(gone));
    CU(cuCtxSynchronize());
    frame_send(socket, HANDLES, &shared, sizeof(shared));
    free(frame_expect(socket, STOP).data);
    check_device_filled(one, 7, SIZE); /* written by the other process */
}

static peer start_owner(handles *shared) {
    peer owner = peer_start("be_owner");
    frame_expect_into(owner.socket, HANDLES, shared, sizeof(*shared));
    return owner;
}

static CUdeviceptr open_handle(CUipcMemHandle handle) {
    CU_GET(CUdeviceptr, address, cuIpcOpenMemHandle_v2(&address, handle, FLAGS));
    return address;
}

TEST(another_process_reads_and_writes) {
    handles shared;
    size_t size = 0;
    CUipcMemHandle again;
    int capable = 1;
    OPEN_DEVICE(0);
    CLEANUP(peer_finish) peer owner = start_owner(&shared);
    const CUdeviceptr address = open_handle(shared.one);
    check_device_filled(address, 1, SIZE);
    CU(cuMemsetD8_v2(address, 7, SIZE));
    CU(cuCtxSynchronize());
    CU_GET(CUdeviceptr, base, cuMemGetAddressRange_v2(&base, &size, address + 5));
    CHECK_EQ(base, address);
    CHECK_EQ(size, SIZE);
    check_inaccessible(address);
    CU(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address));
    CHECK_EQ(capable, 0);
    /* not an allocation of this process */
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&again, address));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(address));
    CU(cuIpcCloseMemHandle(address));
    frame_send(owner.socket, STOP, "", 0);
}

TEST(openings_are_counted) {
    handles shared;
    OPEN_DEVICE(0);
    CLEANUP(peer_kill) peer owner = start_owner(&shared);
    const CUdeviceptr address = open_handle(shared.one);
    CHECK_EQ(open_handle(shared.one), address);
    const CUdeviceptr other = open_handle(shared.two);
    CHECK(other != address);
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(address + 5));
    CU(cuIpcCloseMemHandle(address));
    check_device_filled(address, 1, SIZE);
    CU(cuIpcCloseMemHandle(address));
    check_unknown(address);
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(address));
    CU(cuIpcCloseMemHandle(other));
}

TEST(opened_memory_outlives_a_killed_owner) {
    handles shared;
    CUdeviceptr refused = 0;
    OPEN_DEVICE(0);
    peer owner = start_owner(&shared);
    const CUdeviceptr address = open_handle(shared.one);
    peer_kill(&owner);
    check_device_filled(address, 1, SIZE);
    CU_EXPECT(CUDA_ERROR_INVALID_HANDLE, cuIpcOpenMemHandle_v2(&refused, shared.two, FLAGS));
    CU(cuIpcCloseMemHandle(address));
}

TEST(openings_are_checked) {
    handles shared;
    CUipcMemHandle nonsense;
    CUdeviceptr address = 0;
    OPEN_DEVICE(0);
    CLEANUP(peer_kill) peer owner = start_owner(&shared);
    /* The error depends on the driver. */
    CHECK(cuIpcOpenMemHandle_v2(&address, shared.freed, FLAGS) != CUDA_SUCCESS);
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle_v2(&address, shared.one, 0));
    memset(&nonsense, 0, sizeof(nonsense));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle_v2(&address, nonsense, FLAGS));
    memset(&nonsense, 0x33, sizeof(nonsense));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle_v2(&address, nonsense, FLAGS));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(0));
    CHECK_EQ(address, 0);
}

TEST(a_handle_identifies_the_whole_allocation) {
    CUdeviceptr opened = 0;
    CUipcMemHandle refused;
    OPEN_DEVICE(0);
    const CUdeviceptr address = allocate_filled(SIZE, 1);
    OWN_MAPPING(mapped, 0, GRANULE);
    const CUipcMemHandle base = handle_of(address);
    const CUipcMemHandle interior = handle_of(address + 100);
    CHECK_BYTES(&interior, &base, sizeof(base));
    /* A process cannot open its own handle. */
    CU_EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenMemHandle_v2(&opened, base, FLAGS));
    CU_GET(void *, host, cuMemHostAlloc(&host, 64, 0));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&refused, ADDRESS(host)));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&refused, mapped));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(address));
    CU(cuMemFreeHost(host));
    CU(cuMemFree_v2(address));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&refused, address));
}
