// SPDX-License-Identifier: Apache-2.0
// Sharing with settings of tests: fabric handles that work, and IPC handles opened for another device.
#include "cuda_sim.h"
#include "driver_test.h"

#define FABRIC CU_MEM_HANDLE_TYPE_FABRIC
#define SIZE ((size_t)4 * MIB)

enum { HANDLES = 1, RELEASE, RELEASED, STOP };

typedef struct handles {
    CUmemFabricHandle fabric;
    CUipcMemHandle ipc;
} handles;

static CUmemGenericAllocationHandle create_with_fabric(void) {
    CUmemAllocationProp prop = device_prop(0);
    prop.requestedHandleTypes |= FABRIC;
    CU_GET(CUmemGenericAllocationHandle, handle, cuMemCreate(&handle, GRANULE, &prop, 0));
    return handle;
}

/* Shares memory of a fabric handle and of an IPC handle. */
ROLE(be_owner) {
    sim_set_fabric(true);
    OPEN_DEVICE(0);
    const CUmemGenericAllocationHandle memory = create_with_fabric();
    CU_GET(handles, shared, cuMemExportToShareableHandle(&shared.fabric, memory, FABRIC, 0));
    OWN_MEMORY(plain, SIZE, 2);
    CU(cuIpcGetMemHandle(&shared.ipc, plain));
    frame_send(socket, HANDLES, &shared, sizeof(shared));
    free(frame_expect(socket, RELEASE).data);
    CU(cuMemRelease(memory));
    frame_send(socket, RELEASED, "", 0);
    free(frame_expect(socket, STOP).data);
}

static peer start_owner(handles *shared) {
    peer owner = peer_start("be_owner");
    frame_expect_into(owner.socket, HANDLES, shared, sizeof(*shared));
    return owner;
}

static void release(const peer *owner) {
    frame_send(owner->socket, RELEASE, "", 0);
    free(frame_expect(owner->socket, RELEASED).data);
}

static void stop(peer *owner) {
    frame_send(owner->socket, STOP, "", 0);
    peer_finish(owner);
}

TEST(a_fabric_handle_does_not_keep_memory_alive) {
    handles shared;
    CUmemGenericAllocationHandle first = 0;
    CUmemGenericAllocationHandle late = 0;
    open_device(0);
    peer owner = start_owner(&shared);
    CU_EXPECT(CUDA_ERROR_NOT_PERMITTED, cuMemImportFromShareableHandle(&first, &shared.fabric, FABRIC));
    sim_set_fabric(true);
    CU(cuMemImportFromShareableHandle(&first, &shared.fabric, FABRIC));
    CU_GET(CUmemAllocationProp, prop, cuMemGetAllocationPropertiesFromHandle(&prop, first));
    CHECK_EQ(prop.location.id, 0);
    release(&owner);
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemImportFromShareableHandle(&late, &shared.fabric, FABRIC));
    const CUdeviceptr address = reserve(GRANULE);
    CU(cuMemMap(address, GRANULE, 0, first, 0)); /* the import keeps it alive */
    CU(cuMemUnmap(address, GRANULE));
    CU(cuMemAddressFree(address, GRANULE));
    CU(cuMemRelease(first));
    stop(&owner);
    close_device(0);
    sim_reset();
}

TEST(invalid_fabric_handles_fail) {
    CUmemFabricHandle bytes;
    CUmemGenericAllocationHandle handle = 0;
    NOTHING_LEFT;
    sim_set_fabric(true);
    memset(&bytes, 0xA5, sizeof(bytes));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemImportFromShareableHandle(&handle, &bytes, FABRIC));
    const CUmemGenericAllocationHandle by_fd = create_handle(0, GRANULE);
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemExportToShareableHandle(&bytes, by_fd, FABRIC, 0));
    CU(cuMemRelease(by_fd));
    sim_reset();
    CUmemAllocationProp prop = WITH(device_prop(0), it.requestedHandleTypes = FABRIC);
    CU_EXPECT(CUDA_ERROR_NOT_PERMITTED, cuMemCreate(&handle, GRANULE, &prop, 0));
}

static CUdeviceptr open_for(CUdevice device, CUipcMemHandle handle, int ordinal) {
    CUdeviceptr address = 0;
    CU_GET(CUcontext, context, cuDevicePrimaryCtxRetain(&context, device));
    CU(cuCtxPushCurrent_v2(context));
    CU(cuIpcOpenMemHandle_v2(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    CU_GET(int, found, cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
    CHECK_EQ(found, ordinal);
    CU(cuCtxPopCurrent_v2(NULL));
    return address;
}

TEST(each_device_has_its_own_mapping) {
    handles shared;
    OPEN_DEVICE(0);
    peer owner = start_owner(&shared);
    const CUdeviceptr own = open_for(0, shared.ipc, 0);
    const CUdeviceptr other = open_for(1, shared.ipc, 0);
    CHECK(own != other);
    CHECK(open_for(1, shared.ipc, 0) == other);
    CU(cuIpcCloseMemHandle(other));
    sim_set_ipc_ordinal_of_opener(true);
    CHECK(open_for(1, shared.ipc, 1) == other);
    sim_reset();
    check_device_filled(other, 2, SIZE);
    CU(cuIpcCloseMemHandle(other));
    CU(cuIpcCloseMemHandle(other));
    CU(cuIpcCloseMemHandle(own));
    for (int i = 0; i < 3; i++) CU(cuDevicePrimaryCtxRelease_v2(1));
    CU(cuDevicePrimaryCtxRelease_v2(0));
    release(&owner);
    stop(&owner);
}
