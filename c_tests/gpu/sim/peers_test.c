// SPDX-License-Identifier: Apache-2.0
// Devices with fewer features than an H200: the missing features are reported, calls that need them fail, and
// blocks are still copied between devices.
#include "control.h"
#include "gpu_flight.h"
#include "mapped.h"
#include "caller_context.h"

static void copy(int from, int to) {
    OPENED(flight, flight, .from = PLACE_DEVICE, .to = PLACE_DEVICE, .from_device = from, .to_device = to);
    flight_create(&flight, it.transfer.method = 0);
    flight_run(&flight);
}

static void check_access(bool expected) {
    for (int device = 0; device < 2; device++) {
        GET(kvmem_cuda_device_info, info, kvmem_cuda_get_device_info, device);
        CHECK_EQ((info.can_access >> (1 - device)) & 1, expected);
        CHECK_EQ((info.can_access >> device) & 1, 1);
        copy(device, 1 - device);
    }
}

TEST(blocks_are_copied_with_and_without_peer_access) {
    SIM(sim_set_peer_access(true));
    check_access(true);
    SIM(sim_set_peer_access(false));
    check_access(false);
    SIM(sim_set_peer_access(true));
}

/* Copies to host memory that is not page-locked block within the driver. Each device has threads of its own
   for them. */
TEST(copies_that_block_on_one_device_delay_no_other) {
    enum { THREADS = 16 };
    kvmem_transfer *blocked[THREADS + 1];
    EXPECT_OK(kvmem_cuda_use_default_rates(0, ERR));
    EXPECT_OK(kvmem_cuda_use_default_rates(1, ERR));
    OPENED(flight, first, .from = PLACE_DEVICE, .to = PLACE_SYSTEM);
    OPENED(flight, second, .from = PLACE_DEVICE, .from_device = 1, .to = PLACE_SYSTEM);
    for (size_t i = 0; i < NUM(blocked); i++)
        blocked[i] = flight_create_another(&first, it.transfer.method = KVMEM_METHOD_CUDA_COPY);
    flight_create(&second, it.transfer.method = KVMEM_METHOD_CUDA_COPY);
    SIM(sim_reset());
    SIM(sim_hold());
    for (size_t i = 0; i < NUM(blocked); i++) EXPECT_OK(kvmem_transfer_submit(blocked[i], NULL, ERR));
    await_calls("cuMemcpyAsync", THREADS);
    flight_submit(&second);
    await_calls("cuMemcpyAsync", THREADS + 1);
    SIM(sim_go());
    flight_finish(&second);
    for (size_t i = 0; i < NUM(blocked); i++) {
        EXPECT_OK(kvmem_transfer_wait(blocked[i], PATIENCE, ERR));
        DESTROYED(kvmem_transfer, blocked[i]);
    }
}

static mapped map_on_device_0(void) {
    kvmem_vmm_options options = OPTIONS(kvmem_vmm_options, it.size = 2 * MIB);
    GET(kvmem_vmm_memory *, memory, kvmem_vmm_memory_create, &options);
    return map_memory(memory, 0, options.size, KVMEM_ACCESS_READ_WRITE);
}

TEST(setting_access_without_peer_access_fails) {
    static const uint32_t accesses[] = {KVMEM_ACCESS_READ, KVMEM_ACCESS_READ_WRITE};
    CLEANUP(unmap_memory) const mapped it = map_on_device_0();
    uint32_t access = KVMEM_ACCESS_READ;
    SIM(sim_set_peer_access(false));
    for (size_t i = 0; i < NUM(accesses); i++)
        EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "device 1 cannot access memory of device 0",
                       kvmem_vmm_mapping_set_access(it.mapping, 1, accesses[i], ERR));
    EXPECT_OK(kvmem_vmm_mapping_get_access(it.mapping, 1, &access, ERR));
    CHECK_EQ(access, KVMEM_ACCESS_NONE);
    SIM(sim_set_peer_access(true));
    EXPECT_OK(kvmem_vmm_mapping_set_access(it.mapping, 1, KVMEM_ACCESS_READ, ERR));
}

TEST(without_vmm_its_capabilities_are_not_reported) {
    kvmem_elastic_options options = OPTIONS(kvmem_elastic_options, it.size = MIB);
    SIM(sim_set_attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    GET(kvmem_cuda_device_info, info, kvmem_cuda_get_device_info, 0);
    CHECK(!(info.capabilities & (KVMEM_CUDA_VMM | KVMEM_CUDA_POSIX_FD)));
    CHECK_EQ(info.minimum_granularity, 0);
    CHECK_EQ(info.recommended_granularity, 0);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "no virtual memory management", kvmem_region_create_elastic, &options);
    SIM(sim_reset());
}
