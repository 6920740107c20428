// SPDX-License-Identifier: Apache-2.0
// Driver calls for memory of other processes: opened once, closed once, and released if a check fails.
#include "control.h"
#include "engine.h"
#include "importer.h"
#include "shared_memory.h"
#include "owner.h"
#include "caller_context.h"

OWNER_ROLE

#define SIZE (4 * MIB)

TEST(a_handle_is_opened_once_and_closed_once) {
    OPENED(shared_memory, shared, SIZE, 1);
    SIM(sim_reset());
    CLEANUP(await_live) const sim_counts before = sim_live_now();
    kvmem_region *first = open_ipc(&shared.options);
    kvmem_region *second = open_ipc(&shared.options);
    CHECK_EQ(SIM(sim_calls("cuIpcOpenMemHandle_v2")), 1);
    CALL(kvmem_region_destroy(first));
    CHECK_EQ(SIM(sim_calls("cuIpcCloseMemHandle")), 0);
    CALL(kvmem_region_destroy(second));
    CHECK_EQ(SIM(sim_calls("cuIpcCloseMemHandle")), 1);
}

/* A second call could close another opening of the same memory. */
TEST(a_close_that_fails_is_not_repeated) {
    OPENED(shared_memory, shared, SIZE, 1);
    SIM(sim_reset());
    const sim_counts before = sim_live_now();
    kvmem_region *region = open_ipc(&shared.options);
    SIM(sim_fail("cuIpcCloseMemHandle", 1, CUDA_ERROR_ILLEGAL_ADDRESS));
    CALL(kvmem_region_destroy(region));
    CHECK_EQ(SIM(sim_calls("cuIpcCloseMemHandle")), 1);
    await_live(&before);
    CALL(kvmem_region_destroy(open_ipc(&shared.options)));
    await_live(&before);
    SIM(sim_reset());
}

TEST(a_handle_is_closed_if_a_check_fails) {
    OPENED(shared_memory, shared, SIZE, 1);
    const sim_counts before = sim_live_now();
    shared.options.size = SIZE + 1;
    refuse_ipc(&shared.options, KVMEM_STATUS_OUT_OF_RANGE, "exceed the");
    shared.options.base_size = SIZE - 1;
    refuse_ipc(&shared.options, KVMEM_STATUS_STALE, "its exporter reported");
    await_live(&before);
    shared.options = ipc_options(&shared.handle, SIZE);
    shared.options.device = 1;
    refuse_ipc(&shared.options, KVMEM_STATUS_INVALID_ARGUMENT, "memory of device 0, not of device 1");
    await_live(&before);
}

TEST(opening_without_peer_access_fails) {
    OPENED(shared_memory, shared, SIZE, 1);
    shared.options.device = 1;
    CLEANUP(await_live) const sim_counts before = sim_live_now();
    SIM(sim_set_peer_access(false));
    refuse_ipc(&shared.options, KVMEM_STATUS_CUDA, "PEER_ACCESS_UNSUPPORTED");
    SIM(sim_set_peer_access(true));
}

/* Drivers may report the device of the memory or the device that it was opened for. */
TEST(memory_is_opened_for_another_device) {
    OPENED(shared_memory, shared, SIZE, 1);
    const sim_counts before = sim_live_now();
    for (int is_of_opener = 0; is_of_opener < 2; is_of_opener++) {
        SIM(sim_reset());
        SIM(sim_set_ipc_ordinal_of_opener(is_of_opener == 1));
        shared.options.flags = KVMEM_IPC_FOR_DEVICE;
        shared.options.for_device = 1;
        kvmem_region *other = open_ipc(&shared.options);
        kvmem_region *again = open_ipc(&shared.options);
        shared.options.flags = 0;
        shared.options.for_device = 0;
        kvmem_region *own = open_ipc(&shared.options);
        CHECK_EQ(SIM(sim_calls("cuIpcOpenMemHandle_v2")), 2);
        CHECK_EQ(region_info(other).address, region_info(again).address);
        CHECK(region_info(other).address != region_info(own).address);
        CHECK_EQ(region_info(other).device, 0);
        CALL(kvmem_region_destroy(own));
        CALL(kvmem_region_destroy(other));
        CHECK_EQ(SIM(sim_calls("cuIpcCloseMemHandle")), 1);
        CALL(kvmem_region_destroy(again));
        CHECK_EQ(SIM(sim_calls("cuIpcCloseMemHandle")), 2);
        await_live(&before);
    }
    SIM(sim_reset());
}

TEST(errors_contain_the_device_that_memory_cannot_be_opened_for) {
    OPENED(shared_memory, shared, SIZE, 1);
    shared.options.flags = KVMEM_IPC_FOR_DEVICE;
    shared.options.for_device = 1;
    const sim_counts before = sim_live_now();
    SIM(sim_set_peer_access(false));
    refuse_ipc(&shared.options, KVMEM_STATUS_UNSUPPORTED, "cannot be opened for device 1");
    SIM(sim_set_peer_access(true));
    SIM(sim_fail("cuIpcOpenMemHandle_v2", 1, CUDA_ERROR_ALREADY_MAPPED));
    refuse_ipc(&shared.options, KVMEM_STATUS_UNSUPPORTED, "maps it once");
    shared.options.for_device = 2;
    refuse_ipc(&shared.options, KVMEM_STATUS_OUT_OF_RANGE, "there is no device 2");
    shared.options.flags = 0;
    shared.options.for_device = 1;
    refuse_ipc(&shared.options, KVMEM_STATUS_INVALID_ARGUMENT, "for_device");
    await_live(&before);
    SIM(sim_reset());
}

static void *open_and_close(void *argument) {
    const kvmem_ipc_options *options = argument;
    for (int i = 0; i < 200; i++) {
        /* not OWNED: threads have no caller context */
        CLEANUP(test_end_kvmem_region) kvmem_region *region = NULL;
        kvmem_region_open_ipc(options, &region, NULL);
    }
    return NULL;
}

TEST(concurrent_openings_are_all_closed) {
    OPENED(shared_memory, shared, SIZE, 1);
    SIM(sim_reset());
    CLEANUP(await_live) const sim_counts before = sim_live_now();
    threads_run(4, open_and_close, &shared.options, 0);
    CHECK_EQ(SIM(sim_calls("cuIpcOpenMemHandle_v2")), SIM(sim_calls("cuIpcCloseMemHandle")));
}

TEST(imported_memory_is_released_if_a_check_fails) {
    CLEANUP(peer_finish) peer owner = owner_start();
    CLEANUP(test_close) const int fd = owner_create(&owner, 0, SIZE, 1);
    CLEANUP(await_live) const sim_counts before = sim_live_now();
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "", kvmem_vmm_memory_import_fd, fd, SIZE, 1);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "", kvmem_vmm_memory_import_fd, fd, SIZE + 1, 0);
}

static kvmem_status query_holders(const kvmem_region *region) {
    kvmem_region_holders holders;
    return kvmem_region_get_holders(region, &holders, ERR);
}

/* If locks of importers cannot be queried, an importer may exist. */
TEST(memory_is_not_released_while_importers_are_unknown) {
    int releases = 0;
    ENGINE_MEMORY(address, 0, SIZE);
    kvmem_adopt_options options = OPTIONS(kvmem_adopt_options, it.address = (void *)(uintptr_t)address,
                                          it.size = SIZE, it.release = count_release,
                                          it.user_data = &releases);
    GET(kvmem_region *, region, kvmem_region_adopt_device, &options, 0);
    options.release = NULL;
    options.user_data = NULL;
    OWN(kvmem_region, other, kvmem_region_adopt_device, &options, 0);
    GET(kvmem_share *, share, kvmem_share_create_region, region, NULL);
    CALL(kvmem_share_destroy(share));
    block_files files;
    block_files_disable_locks(&files);
    EXPECT_MESSAGE(KVMEM_STATUS_IO, "get the locks of a file", query_holders(region));
    CALL(kvmem_region_destroy(region));
    EXPECT_OK(query_holders(other));
    expect_releases(&releases, 0);
    block_files_enable_locks(&files);
    EXPECT_OK(query_holders(other));
    expect_releases(&releases, 1);
}
