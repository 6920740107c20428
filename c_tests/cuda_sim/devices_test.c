// SPDX-License-Identifier: Apache-2.0
// Devices: their properties, their peers, and their order with CUDA_VISIBLE_DEVICES.
#include "driver_test.h"

enum { DEVICE_COUNT = 1, DEVICE_UUID };

/* Sends the number of devices, and the UUID of each. */
ROLE(list_devices) {
    CU(cuInit(0));
    CU_GET(int, count, cuDeviceGetCount(&count));
    frame_send(socket, DEVICE_COUNT, &count, sizeof(count));
    for (CUdevice device = 0; device < count; device++) {
        CU_GET(CUuuid, uuid, cuDeviceGetUuid_v2(&uuid, device));
        frame_send(socket, DEVICE_UUID, &uuid, sizeof(uuid));
    }
}

static CUuuid uuid_of(CUdevice device) {
    CU_GET(CUuuid, uuid, cuDeviceGetUuid_v2(&uuid, device));
    return uuid;
}

/* Checks that a process with this list has these devices. `devices` are their ordinals in this process. */
static void expect_visible(const char *list, int count, const CUdevice *devices) {
    setenv("CUDA_VISIBLE_DEVICES", list, 1);
    CLEANUP(peer_finish) peer other = peer_start("list_devices");
    unsetenv("CUDA_VISIBLE_DEVICES");
    message received = frame_expect(other.socket, DEVICE_COUNT);
    CHECK_EQ(*(int *)(void *)received.data, count);
    free(received.data);
    for (int i = 0; i < count; i++) {
        const CUuuid expected = uuid_of(devices[i]);
        received = frame_expect(other.socket, DEVICE_UUID);
        CHECK_BYTES(received.data, expected.bytes, sizeof(expected.bytes));
        free(received.data);
    }
}

TEST(visible_devices_are_reordered) {
    CU(cuInit(0));
    expect_visible("0,1", 2, (const CUdevice[]){0, 1});
    expect_visible("1,0", 2, (const CUdevice[]){1, 0});
    expect_visible("1", 1, (const CUdevice[]){1});
    expect_visible("1,77,0", 1, (const CUdevice[]){1});
    expect_visible("0,-1,1", 1, (const CUdevice[]){0});
}

TEST(devices_differ) {
    CU(cuInit(0));
    CU_GET(int, count, cuDeviceGetCount(&count));
    CHECK(count >= 2);
    const CUuuid first = uuid_of(0);
    const CUuuid second = uuid_of(1);
    CHECK(memcmp(&first, &second, sizeof(first)) != 0);
    CU_GET(CUuuid, old_form, cuDeviceGetUuid(&old_form, 1));
    CHECK_BYTES(old_form.bytes, second.bytes, sizeof(second.bytes));
    char ids[2][32];
    CU(cuDeviceGetPCIBusId(ids[0], sizeof(ids[0]), 0));
    CU(cuDeviceGetPCIBusId(ids[1], sizeof(ids[1]), 1));
    CHECK(strcmp(ids[0], ids[1]) != 0);
    CHECK_EQ(strlen(ids[0]), 12);
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuDeviceGetPCIBusId(ids[0], 5, 0));
}

TEST(names_are_truncated_to_the_buffer) {
    char name[64];
    char start[4];
    CU(cuInit(0));
    CU(cuDeviceGetName(name, sizeof(name), 0));
    CU(cuDeviceGetName(start, sizeof(start), 0));
    CHECK_EQ(strlen(start), 3);
    CHECK(strncmp(name, start, 3) == 0);
}

TEST(unknown_devices_are_invalid) {
    CU(cuInit(0));
    const CUdevice unknown[] = {-1, 100};
    for (size_t i = 0; i < NUM(unknown); i++) {
        CUdevice device = 0;
        char text[64];
        CUuuid uuid;
        size_t bytes = 0;
        int value = 0;
        CUcontext context = NULL;
        unsigned flags = 0;
        CU_EXPECT(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, unknown[i]));
        CU_EXPECT(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetName(text, sizeof(text), unknown[i]));
        CU_EXPECT(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetUuid_v2(&uuid, unknown[i]));
        CU_EXPECT(CUDA_ERROR_INVALID_DEVICE, cuDeviceTotalMem_v2(&bytes, unknown[i]));
        CU_EXPECT(CUDA_ERROR_INVALID_DEVICE,
                  cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, unknown[i]));
        CU_EXPECT(CUDA_ERROR_INVALID_DEVICE, cuDeviceCanAccessPeer(&value, 0, unknown[i]));
        CU_EXPECT(CUDA_ERROR_INVALID_DEVICE, cuDevicePrimaryCtxRetain(&context, unknown[i]));
        CU_EXPECT(CUDA_ERROR_INVALID_DEVICE, cuDevicePrimaryCtxGetState(unknown[i], &flags, &value));
    }
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuDeviceGet(NULL, 0));
}

TEST(attributes_are_those_of_an_h200) {
    static const struct {
        CUdevice_attribute attribute;
        int value;
    } expected[] = {
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
        {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
        {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    };
    CU(cuInit(0));
    int value = 0;
    for (size_t i = 0; i < NUM(expected); i++) {
        CU(cuDeviceGetAttribute(&value, expected[i].attribute, 1));
        CHECK_EQ(value, expected[i].value);
    }
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(&value, (CUdevice_attribute)9999, 0));
}

TEST(peers_can_access_each_other) {
    CU(cuInit(0));
    CU_GET(int, can, cuDeviceCanAccessPeer(&can, 0, 1));
    CHECK_EQ(can, 1);
    CU(cuDeviceCanAccessPeer(&can, 1, 1));
    CHECK_EQ(can, 0); /* a device is not a peer of itself */
}
