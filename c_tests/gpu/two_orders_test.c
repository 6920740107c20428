// SPDX-License-Identifier: Apache-2.0
// Two processes that see the GPUs in different orders, or not the same ones. Fails where there is one GPU.
#include "filled.h"
#include "mapped.h"
#include "opened.h"
#include "owner.h"
#include "stance.h"

OWNER_ROLE
REQUIRES(lacks_two_gpus)

#define SIZE (4 * MIB)

TEST(a_handle_is_opened_where_its_memory_lies) {
    CLEANUP(peer_finish) peer owner = peer_start_with("owner", "CUDA_VISIBLE_DEVICES", "1,0");
    for (int device = 0; device < 2; device++) {
        const kvmem_ipc_handle handle = owner_allocate(&owner, device, SIZE, 0, 0x51);
        const kvmem_ipc_options options = ipc_options(&handle, SIZE);
        CHECK_EQ(options.device, 1 - device);
        OWNED(kvmem_region) region = open_ipc(&options);
        CHECK_EQ(region_info(region).device_id, 1 - device);
        check_device(1 - device, region_info(region).address, SIZE, 0x51);
        fill_device(1 - device, region_info(region).address, SIZE, 0x15);
        owner_check(&owner, 0x15);
    }
}

TEST(a_descriptor_is_of_the_device_where_its_memory_lies) {
    CLEANUP(peer_finish) peer owner = peer_start_with("owner", "CUDA_VISIBLE_DEVICES", "1,0");
    for (int device = 0; device < 2; device++) {
        const int fd = owner_create(&owner, device, SIZE, 0x52);
        kvmem_vmm_memory *memory = NULL;
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "the memory is located on device",
                       kvmem_vmm_memory_import_fd(fd, SIZE, device, &memory, ERR));
        EXPECT_OK(kvmem_vmm_memory_import_fd(fd, SIZE, 1 - device, &memory, ERR));
        close(fd);
        MAPPED(here, memory, 1 - device, SIZE, KVMEM_ACCESS_READ_WRITE);
        check_device(1 - device, here.address, SIZE, 0x52);
    }
}

/* The other's memory, reached from the GPU it does not lie on. */
TEST(a_descriptor_is_mapped_for_another_device) {
    CLEANUP(peer_finish) peer owner = peer_start_with("owner", "CUDA_VISIBLE_DEVICES", "1");
    const int fd = owner_create(&owner, 0, SIZE, 0x53);
    GET(kvmem_vmm_memory *, memory, kvmem_vmm_memory_import_fd, fd, SIZE, 1);
    close(fd);
    MAPPED(here, memory, 0, SIZE, KVMEM_ACCESS_READ_WRITE);
    check_device(0, here.address, SIZE, 0x53);
    fill_device(0, here.address, SIZE, 0x35);
    owner_check(&owner, 0x35);
}

enum { TOLD = 1 };

/* Sees one GPU alone, and is handed memory of the other. */
ROLE(be_blind) {
    driver_get(); /* now, for it makes a call of the library's, whose error is the last one then */
    kvmem_ipc_handle handle;
    frame_expect_into(socket, TOLD, &handle, sizeof(handle));
    int32_t device = 77;
    EXPECT_MESSAGE(KVMEM_STATUS_NOT_FOUND, "GPU-", kvmem_cuda_find_device(handle.uuid, &device, ERR));
    CHECK_HAS(test_last_message(), "not one of the 1 GPUs");
    CHECK_EQ(device, 77);
    kvmem_ipc_options options = OPTIONS(kvmem_ipc_options);
    memcpy(options.handle, handle.handle, sizeof(options.handle));
    options.size = SIZE;
    /* A driver may open it for the GPU that is seen, if that reaches it: then it is memory of that one
       here. */
    kvmem_region *region = NULL;
    if (kvmem_region_open_ipc(&options, &region, ERR) == KVMEM_STATUS_OK) {
        CHECK_EQ(region_info(region).device_id, 0);
    } else {
        CHECK(region == NULL);
    }
    CALL(kvmem_region_destroy(region));
    frame_send(socket, TOLD, "", 0);
}

TEST(memory_of_a_hidden_device_is_not_found) {
    kvmem_device_options options = OPTIONS(kvmem_device_options, it.device = 1, it.size = SIZE);
    OWN(kvmem_region, region, kvmem_region_create_device, &options);
    GET(kvmem_ipc_handle, handle, kvmem_ipc_export, region_info(region).address);
    CLEANUP(peer_finish) peer blind = peer_start_with("be_blind", "CUDA_VISIBLE_DEVICES", "0");
    frame_send(blind.socket, TOLD, &handle, sizeof(handle));
    free(frame_expect(blind.socket, TOLD).data);
}
