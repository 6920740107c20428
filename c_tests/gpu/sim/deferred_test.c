// SPDX-License-Identifier: Apache-2.0
// Memory that is destroyed beside work that runs for long: it is freed when the work has ended, or when an allocation needs it.
#include "busy.h"
#include "control.h"
#include "gpu_flight.h"
#include "patience.h"
#include "caller_context.h"

/* kvmem learns that work of the context runs for long when it cannot load a kernel. */
static void learn_that_work_is_long(flight *flight) {
    flight_refuse(flight, KVMEM_STATUS_BUSY, "the driver loads no kernel meanwhile", it.path = KVMEM_PATH_CUDA_KERNEL);
}

static kvmem_status allocate(uint64_t size, kvmem_region **region) {
    return kvmem_region_create_device(REF(OPTIONS(kvmem_device_options, it.size = size)), region, ERR);
}

TEST(an_allocation_gets_memory_that_was_destroyed_beside_long_work) {
    RETAIN_DEVICE(0);
    CU_GET(size_t, memory, cuDeviceTotalMem_v2(&memory, 0));
    const uint64_t most = memory / 5 * 4;
    CLEANUP(await_live) const sim_counts before = sim_live_now();
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE);
    kvmem_region *region = NULL;
    EXPECT_OK(allocate(most, &region));
    busy busy = {0};
    busy_begin(&busy, BUSY_ONE);
    learn_that_work_is_long(&flight);
    DESTROYED(kvmem_region, region);
    EXPECT(KVMEM_STATUS_OUT_OF_MEMORY, allocate(most, &region));
    busy_end(&busy);
    EXPECT_OK(allocate(most, &region)); /* at once: nothing else may have freed it */
    DESTROYED(kvmem_region, region);
}

/* Work that was submitted after the destruction counts, too: the driver would wait for it. */
TEST(later_work_is_waited_for) {
    RETAIN_DEVICE(0);
    CLEANUP(await_live) const sim_counts before = sim_live_now();
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE);
    kvmem_region *region = NULL;
    EXPECT_OK(allocate(MIB, &region));
    const uint64_t address = region_info(region).address;
    busy first = {0}, second = {0};
    busy_begin(&first, BUSY_ONE);
    learn_that_work_is_long(&flight);
    DESTROYED(kvmem_region, region);
    const uint64_t freed = SIM(sim_calls("cuMemFree_v2"));
    busy_begin(&second, BUSY_ONE); /* the stand-in holds both back until the end of the hold */
    CHECK_EQ(SIM(sim_calls("cuMemFree_v2")), freed);
    CHECK(driver_memory_type(address) != 0);
    busy_end(&first);
    busy_end(&second);
    const uint64_t end = patience_end();
    while (driver_memory_type(address) != 0) patience_wait(end, "memory to be freed when the device is idle");
}

/* In a context in which no work has run for long, memory is free when its destruction returns, and no capture is invalidated by a question. */
TEST(without_long_work_memory_is_freed_at_once) {
    SIM(sim_reset());
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE);
    flight_create(&flight, it.path = KVMEM_PATH_CUDA_KERNEL);
    kvmem_region *region = NULL;
    EXPECT_OK(allocate(MIB, &region));
    const uint64_t address = region_info(region).address, asked = SIM(sim_calls("cuCtxRecordEvent"));
    DESTROYED(kvmem_region, region);
    CHECK_EQ(driver_memory_type(address), 0);
    CHECK_EQ(SIM(sim_calls("cuCtxRecordEvent")), asked);
}
