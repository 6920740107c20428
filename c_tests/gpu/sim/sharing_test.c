// SPDX-License-Identifier: Apache-2.0
// Memory of other processes, by the counts: opened once, closed once, given back where it is refused.
#include "control.h"
#include "opened.h"
#include "owner.h"
#include "regions.h"
#include "stance.h"

#include <pthread.h>
#include <unistd.h>

#define SIZE (4 * MIB)

static void a_handle_is_open_once_and_closed_once(void) {
    peer owner = owner_start();
    const kvmem_ipc_handle handle = owner_allocate(&owner, 0, SIZE, 0, 1);
    const kvmem_ipc_options options = ipc_options(&handle, SIZE);
    SIM(sim_reset());
    const sim_counts before = sim_live_now();
    kvmem_region *first = open_ipc(&options);
    kvmem_region *second = open_ipc(&options);
    CHECK_EQ(SIM(sim_calls("cuIpcOpenMemHandle_v2")), 1);
    CALL(kvmem_region_destroy(first));
    CHECK_EQ(SIM(sim_calls("cuIpcCloseMemHandle")), 0);
    CALL(kvmem_region_destroy(second));
    CHECK_EQ(SIM(sim_calls("cuIpcCloseMemHandle")), 1);
    await_live(&before);
    peer_finish(&owner);
}

/* It may be somebody else's opening that a second try would close. */
static void a_close_that_fails_is_not_tried_again(void) {
    peer owner = owner_start();
    const kvmem_ipc_handle handle = owner_allocate(&owner, 0, SIZE, 0, 1);
    const kvmem_ipc_options options = ipc_options(&handle, SIZE);
    SIM(sim_reset());
    const sim_counts before = sim_live_now();
    kvmem_region *region = open_ipc(&options);
    SIM(sim_fail("cuIpcCloseMemHandle", 1, CUDA_ERROR_ILLEGAL_ADDRESS));
    CALL(kvmem_region_destroy(region));
    CHECK_EQ(SIM(sim_calls("cuIpcCloseMemHandle")), 1);
    await_live(&before);
    CALL(kvmem_region_destroy(open_ipc(&options)));
    await_live(&before);
    SIM(sim_reset());
    peer_finish(&owner);
}

static void what_is_refused_is_closed_again(void) {
    peer owner = owner_start();
    const kvmem_ipc_handle handle = owner_allocate(&owner, 0, SIZE, 0, 1);
    kvmem_ipc_options options = ipc_options(&handle, SIZE);
    const sim_counts before = sim_live_now();
    options.size = SIZE + 1;
    refuse_ipc(&options, KVMEM_STATUS_OUT_OF_RANGE, "reach past");
    options.base_size = SIZE - 1;
    refuse_ipc(&options, KVMEM_STATUS_STALE, "its exporter had");
    await_live(&before);
    options = ipc_options(&handle, SIZE);
    options.device = 1;
    refuse_ipc(&options, KVMEM_STATUS_INVALID_ARGUMENT, "memory of device 0, not of device 1");
    await_live(&before);
    peer_finish(&owner);
}

static void a_device_out_of_reach_is_refused(void) {
    peer owner = owner_start();
    const kvmem_ipc_handle handle = owner_allocate(&owner, 0, SIZE, 0, 1);
    kvmem_ipc_options options = ipc_options(&handle, SIZE);
    options.device = 1;
    const sim_counts before = sim_live_now();
    SIM(sim_set_peer_access(false));
    refuse_ipc(&options, KVMEM_STATUS_CUDA, "PEER_ACCESS_UNSUPPORTED");
    SIM(sim_set_peer_access(true));
    await_live(&before);
    peer_finish(&owner);
}

/* Whatever the driver says of a pointer that was opened for a peer: where it lies, or for whom it is. */
static void it_is_opened_for_another_device(void) {
    peer owner = owner_start();
    const kvmem_ipc_handle handle = owner_allocate(&owner, 0, SIZE, 0, 1);
    kvmem_ipc_options options = ipc_options(&handle, SIZE);
    const sim_counts before = sim_live_now();
    for (int is_of_opener = 0; is_of_opener < 2; is_of_opener++) {
        SIM(sim_reset());
        SIM(sim_set_ipc_ordinal_of_opener(is_of_opener == 1));
        options.flags = KVMEM_IPC_FOR_DEVICE;
        options.for_device = 1;
        kvmem_region *other = open_ipc(&options);
        kvmem_region *again = open_ipc(&options);
        options.flags = 0;
        options.for_device = 0;
        kvmem_region *own = open_ipc(&options);
        CHECK_EQ(SIM(sim_calls("cuIpcOpenMemHandle_v2")), 2);
        CHECK_EQ(region_info(other).address, region_info(again).address);
        CHECK(region_info(other).address != region_info(own).address);
        CHECK_EQ(region_info(other).device_id, 0);
        CALL(kvmem_region_destroy(own));
        CALL(kvmem_region_destroy(other));
        CHECK_EQ(SIM(sim_calls("cuIpcCloseMemHandle")), 1);
        CALL(kvmem_region_destroy(again));
        CHECK_EQ(SIM(sim_calls("cuIpcCloseMemHandle")), 2);
        await_live(&before);
    }
    SIM(sim_reset());
    peer_finish(&owner);
}

static void a_device_it_can_not_be_opened_for_is_told(void) {
    peer owner = owner_start();
    const kvmem_ipc_handle handle = owner_allocate(&owner, 0, SIZE, 0, 1);
    kvmem_ipc_options options = ipc_options(&handle, SIZE);
    options.flags = KVMEM_IPC_FOR_DEVICE;
    options.for_device = 1;
    const sim_counts before = sim_live_now();
    SIM(sim_set_peer_access(false));
    refuse_ipc(&options, KVMEM_STATUS_UNSUPPORTED, "can't be opened for device 1");
    SIM(sim_set_peer_access(true));
    SIM(sim_fail("cuIpcOpenMemHandle_v2", 1, CUDA_ERROR_ALREADY_MAPPED));
    refuse_ipc(&options, KVMEM_STATUS_UNSUPPORTED, "maps it once");
    options.for_device = 2;
    refuse_ipc(&options, KVMEM_STATUS_OUT_OF_RANGE, "there is no device 2");
    options.flags = 0;
    options.for_device = 1;
    refuse_ipc(&options, KVMEM_STATUS_INVALID_ARGUMENT, "for_device");
    await_live(&before);
    SIM(sim_reset());
    peer_finish(&owner);
}

static void *open_and_close(void *argument) {
    const kvmem_ipc_options *options = argument;
    for (int i = 0; i < 200; i++) {
        kvmem_region *region = NULL;
        kvmem_region_open_ipc(options, &region, NULL);
        kvmem_region_destroy(region);
    }
    return NULL;
}

static void threads_leave_nothing_open(void) {
    peer owner = owner_start();
    const kvmem_ipc_handle handle = owner_allocate(&owner, 0, SIZE, 0, 1);
    kvmem_ipc_options options = ipc_options(&handle, SIZE);
    SIM(sim_reset());
    const sim_counts before = sim_live_now();
    pthread_t threads[4];
    for (size_t i = 0; i < NUM(threads); i++) {
        CHECK_EQ(pthread_create(&threads[i], NULL, open_and_close, &options), 0);
    }
    for (size_t i = 0; i < NUM(threads); i++) {
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    }
    CHECK_EQ(SIM(sim_calls("cuIpcOpenMemHandle_v2")), SIM(sim_calls("cuIpcCloseMemHandle")));
    await_live(&before);
    peer_finish(&owner);
}

static void memory_of_another_device_is_released_again(void) {
    peer owner = owner_start();
    const int fd = owner_create(&owner, 0, SIZE, 1);
    const sim_counts before = sim_live_now();
    kvmem_vmm_memory *memory = NULL;
    EXPECT(KVMEM_STATUS_INVALID_ARGUMENT, kvmem_vmm_memory_import_fd(fd, SIZE, 1, &memory, ERR));
    EXPECT(KVMEM_STATUS_INVALID_ARGUMENT, kvmem_vmm_memory_import_fd(fd, SIZE + 1, 0, &memory, ERR));
    await_live(&before);
    close(fd);
    peer_finish(&owner);
}

static const test_role roles[] = {OWNER_ROLE};
static const test_case cases[] = {
    CASE(a_handle_is_open_once_and_closed_once),
    CASE(a_close_that_fails_is_not_tried_again),
    CASE(what_is_refused_is_closed_again),
    CASE(a_device_out_of_reach_is_refused),
    CASE(it_is_opened_for_another_device),
    CASE(a_device_it_can_not_be_opened_for_is_told),
    CASE(threads_leave_nothing_open),
    CASE(memory_of_another_device_is_released_again),
};
GPU_MAIN_WITH_ROLES
