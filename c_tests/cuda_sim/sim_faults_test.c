// SPDX-License-Identifier: Apache-2.0
// Failing on demand: the nth call, every call, the nth of all; with and without effect; later.
#include "cuda_sim.h"
#include "driver_test.h"

#define FAILURE CUDA_ERROR_ECC_UNCORRECTABLE

static void set_up(void) {
    sim_reset();
    open_device(0);
}

static void tear_down(void) {
    sim_reset();
    close_device(0);
}

static sim_counts live(void) {
    sim_counts counts;
    sim_live(&counts);
    return counts;
}

TEST(the_nth_call_fails_once) {
    CUdeviceptr addresses[3] = {0};
    set_up();
    CHECK(sim_last_failed() == NULL);
    sim_fail("cuMemAlloc_v2", 2, FAILURE);
    CU(cuMemAlloc_v2(&addresses[0], 64));
    CU_EXPECT(FAILURE, cuMemAlloc_v2(&addresses[1], 64));
    CHECK_EQ(addresses[1], 0);
    CHECK_STR(sim_last_failed(), "cuMemAlloc_v2");
    CU(cuMemAlloc_v2(&addresses[2], 64));
    CHECK_EQ(live().allocations, 2);
    CU(cuMemFree_v2(addresses[0]));
    CU(cuMemFree_v2(addresses[2]));
    tear_down();
}

TEST(two_failures_are_planned_at_once) {
    CUdeviceptr address = 0;
    int count = 0;
    set_up();
    sim_fail("cuMemAlloc_v2", 1, CUDA_ERROR_OUT_OF_MEMORY);
    sim_fail("cuDeviceGetCount", 1, FAILURE);
    CU_EXPECT(FAILURE, cuDeviceGetCount(&count));
    CU_EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&address, 64));
    tear_down();
}

TEST(every_call_fails_until_reset) {
    int count = 0;
    set_up();
    sim_fail("cuDeviceGetCount", SIM_EVERY_CALL, FAILURE);
    for (int i = 0; i < 3; i++) CU_EXPECT(FAILURE, cuDeviceGetCount(&count));
    sim_reset();
    CU(cuDeviceGetCount(&count));
    tear_down();
}

TEST(the_nth_of_all_calls_fails) {
    int count = 0;
    CUdevice device = 0;
    CUdeviceptr address = 0;
    set_up();
    sim_fail_nth_of_all(3, FAILURE);
    CU(cuDeviceGetCount(&count));
    CU(cuDeviceGet(&device, 0));
    CU_EXPECT(FAILURE, cuMemAlloc_v2(&address, 64));
    CHECK_STR(sim_last_failed(), "cuMemAlloc_v2");
    CU(cuDeviceGet(&device, 0));
    tear_down();
}

/* What the library calls first can fail too. */
TEST(init_fails_on_demand) {
    sim_reset();
    sim_fail("cuInit", 1, CUDA_ERROR_SYSTEM_NOT_READY);
    CU_EXPECT(CUDA_ERROR_SYSTEM_NOT_READY, cuInit(0));
    CU(cuInit(0));
    sim_reset();
}

TEST(calls_are_counted) {
    int count = 0;
    CUdevice device = 0;
    set_up();
    sim_reset();
    CU(cuDeviceGetCount(&count));
    CU(cuDeviceGetCount(&count));
    CU(cuDeviceGet(&device, 0));
    CU_EXPECT(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, 99));
    CHECK_EQ(sim_calls("cuDeviceGetCount"), 2);
    CHECK_EQ(sim_calls("cuDeviceGet"), 2);
    CHECK_EQ(sim_calls("cuMemAlloc_v2"), 0);
    CHECK_EQ(sim_call_count(), 4);
    tear_down();
}

/* A failing release has let go, as when the driver tells of earlier work. */
TEST(a_failed_release_has_released) {
    set_up();
    const CUdeviceptr address = allocate_filled(64, 1);
    sim_fail("cuMemFree_v2", 1, FAILURE);
    CU_EXPECT(FAILURE, cuMemFree_v2(address));
    CHECK_EQ(live().allocations, 0);
    sim_fail("cuMemFree_v2", 1, FAILURE);
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(address)); /* its own error comes first */
    sim_fail("cuCtxPopCurrent_v2", 1, FAILURE);
    CU_EXPECT(FAILURE, cuCtxPopCurrent_v2(NULL));
    CHECK_EQ(sim_current_context_depth(), 0);
    sim_fail("cuDevicePrimaryCtxRelease_v2", 1, FAILURE);
    CU_EXPECT(FAILURE, cuDevicePrimaryCtxRelease_v2(0));
    check_nothing_left();
    sim_reset();
}

TEST(a_refused_release_has_not) {
    set_up();
    const CUdeviceptr address = allocate_filled(64, 1);
    sim_refuse("cuMemFree_v2", 1, FAILURE);
    CU_EXPECT(FAILURE, cuMemFree_v2(address));
    CHECK_EQ(live().allocations, 1);
    CU(cuMemFree_v2(address));
    tear_down();
}

TEST(work_fails_later_and_is_told_once) {
    CUstream stream = NULL;
    CUstream other = NULL;
    set_up();
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    const CUdeviceptr address = allocate_filled(64, 1);
    sim_fail_later("cuMemsetD8Async", 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    CU(cuMemsetD8Async(address, 2, 64, stream));
    check_device_filled(address, 1, 64); /* not done */
    CU(cuStreamSynchronize(other));      /* nothing of its own */
    CU_EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    CU(cuStreamSynchronize(stream));
    sim_fail_later("cuMemcpyDtoDAsync_v2", 1, FAILURE);
    CU(cuMemcpyDtoDAsync_v2(address, address + 32, 32, stream));
    CU(cuStreamQuery(other)); /* whoever looks, the work is done */
    CU_EXPECT(FAILURE, cuMemsetD8Async(address, 3, 64, stream)); /* the next to submit is told too */
    CU(cuMemsetD8Async(address, 4, 64, stream));
    sim_fail_later("cuMemsetD8Async", 1, FAILURE);
    CU(cuMemsetD8Async(address, 5, 64, stream));
    CU_EXPECT(FAILURE, cuCtxSynchronize());
    CU(cuStreamQuery(stream));
    check_device_filled(address, 4, 64);
    CU(cuMemFree_v2(address));
    CU(cuStreamDestroy_v2(stream));
    CU(cuStreamDestroy_v2(other));
    tear_down();
}

TEST(an_event_after_failed_work_tells_of_it) {
    CUstream stream = NULL;
    CUevent event = NULL;
    set_up();
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    const CUdeviceptr address = allocate_filled(64, 1);
    sim_fail_later("cuMemsetD8Async", 1, FAILURE);
    CU(cuMemsetD8Async(address, 2, 64, stream));
    CU(cuEventRecord(event, stream));
    CU_EXPECT(FAILURE, cuEventSynchronize(event));
    CU_EXPECT(FAILURE, cuEventQuery(event));
    CU_EXPECT(FAILURE, cuStreamQuery(stream));
    CU(cuEventRecord(event, stream));
    CU(cuEventQuery(event));
    CU(cuMemFree_v2(address));
    CU(cuEventDestroy_v2(event));
    CU(cuStreamDestroy_v2(stream));
    tear_down();
}
