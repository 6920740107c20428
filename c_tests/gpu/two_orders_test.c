// SPDX-License-Identifier: Apache-2.0
// Two processes with different CUDA_VISIBLE_DEVICES: other orders, or other GPUs. Skipped with one GPU.
#include "filled.h"
#include "mapped.h"
#include "shared_memory.h"
#include "owner.h"
#include "caller_context.h"

OWNER_ROLE
REQUIRES(lacks_two_gpus)

#define SIZE (4 * MIB)

TEST(a_handle_is_opened_on_the_device_of_its_memory) {
    CLEANUP(peer_finish) peer owner = peer_start_with("owner", "CUDA_VISIBLE_DEVICES", "1,0");
    for (int device = 0; device < 2; device++) {
        const kvmem_ipc_handle handle = owner_allocate(&owner, device, SIZE, 0, 0x51);
        const kvmem_ipc_options options = ipc_options(&handle, SIZE);
        CHECK_EQ(options.device, 1 - device);
        OWNED(kvmem_region) region = open_ipc(&options);
        CHECK_EQ(region_info(region).device, 1 - device);
        check_device(1 - device, region_info(region).address, SIZE, 0x51);
        fill_device(1 - device, region_info(region).address, SIZE, 0x15);
        owner_check(&owner, 0x15);
    }
}

TEST(a_descriptor_is_imported_on_the_device_of_its_memory) {
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

TEST(imported_memory_is_mapped_for_another_device) {
    CLEANUP(peer_finish) peer owner = peer_start_with("owner", "CUDA_VISIBLE_DEVICES", "1");
    const int fd = owner_create(&owner, 0, SIZE, 0x53);
    GET(kvmem_vmm_memory *, memory, kvmem_vmm_memory_import_fd, fd, SIZE, 1);
    close(fd);
    MAPPED(here, memory, 0, SIZE, KVMEM_ACCESS_READ_WRITE);
    check_device(0, here.address, SIZE, 0x53);
    fill_device(0, here.address, SIZE, 0x35);
    owner_check(&owner, 0x35);
}

enum { HANDLE = 1 };

/* Has only one visible GPU, and gets a handle of memory of the other. */
ROLE(be_importer_with_one_gpu) {
    driver_get(); /* first, because it calls kvmem, which changes the last error */
    kvmem_ipc_handle handle;
    frame_expect_into(socket, HANDLE, &handle, sizeof(handle));
    int32_t device = 77;
    EXPECT_MESSAGE(KVMEM_STATUS_NOT_FOUND, "UUID ", kvmem_cuda_find_device(handle.uuid, &device, ERR));
    CHECK_HAS(test_last_message(), "none of the 1 GPUs");
    CHECK_EQ(device, 77);
    kvmem_ipc_options options = OPTIONS(kvmem_ipc_options);
    memcpy(options.handle, handle.handle, sizeof(options.handle));
    options.size = SIZE;
    /* A driver may open it for the visible GPU if that has peer access. Then it is memory of that GPU
       here. */
    kvmem_region *region = NULL;
    if (kvmem_region_open_ipc(&options, &region, ERR) == KVMEM_STATUS_OK) {
        CHECK_EQ(region_info(region).device, 0);
    } else {
        CHECK(region == NULL);
    }
    CALL(kvmem_region_destroy(region));
    frame_send(socket, HANDLE, "", 0);
}

TEST(the_device_of_a_handle_is_not_found_if_it_is_not_visible) {
    kvmem_device_options options = OPTIONS(kvmem_device_options, it.device = 1, it.size = SIZE);
    OWN(kvmem_region, region, kvmem_region_create_device, &options);
    GET(kvmem_ipc_handle, handle, kvmem_ipc_export, region_info(region).address);
    CLEANUP(peer_finish) peer importer = peer_start_with("be_importer_with_one_gpu", "CUDA_VISIBLE_DEVICES",
                                                         "0");
    frame_send(importer.socket, HANDLE, &handle, sizeof(handle));
    free(frame_expect(importer.socket, HANDLE).data);
}
