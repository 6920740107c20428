// SPDX-License-Identifier: Apache-2.0
// Planned failures: of the nth call, of every call, of the nth of all calls; with and without effect; of
// work.
#include "cuda_sim.h"
#include "driver_test.h"

#define FAILURE CUDA_ERROR_ECC_UNCORRECTABLE

static void cancel_failures(const int *planned) {
    (void)planned;
    sim_reset();
}

/* Opens device 0 until the scope ends; cancels planned failures before and after. */
#define OPEN_DEVICE_TO_FAIL                                                                          \
    sim_reset();                                                                                     \
    OPEN_DEVICE(0);                                                                                  \
    CLEANUP(cancel_failures) const int planned_failures_ = 0

TEST(the_nth_call_fails_once) {
    CUdeviceptr addresses[3] = {0};
    OPEN_DEVICE_TO_FAIL;
    CHECK(sim_last_failed() == NULL);
    sim_fail("cuMemAlloc_v2", 2, FAILURE);
    CU(cuMemAlloc_v2(&addresses[0], 64));
    CU_EXPECT(FAILURE, cuMemAlloc_v2(&addresses[1], 64));
    CHECK_EQ(addresses[1], 0);
    CHECK_STR(sim_last_failed(), "cuMemAlloc_v2");
    CU(cuMemAlloc_v2(&addresses[2], 64));
    CHECK_EQ(live_objects().allocations, 2);
    CU(cuMemFree_v2(addresses[0]));
    CU(cuMemFree_v2(addresses[2]));
}

TEST(two_failures_can_be_planned) {
    CUdeviceptr address = 0;
    int count = 0;
    OPEN_DEVICE_TO_FAIL;
    sim_fail("cuMemAlloc_v2", 1, CUDA_ERROR_OUT_OF_MEMORY);
    sim_fail("cuDeviceGetCount", 1, FAILURE);
    CU_EXPECT(FAILURE, cuDeviceGetCount(&count));
    CU_EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&address, 64));
}

TEST(every_call_fails_until_reset) {
    int count = 0;
    OPEN_DEVICE_TO_FAIL;
    sim_fail("cuDeviceGetCount", SIM_EVERY_CALL, FAILURE);
    for (int i = 0; i < 3; i++) CU_EXPECT(FAILURE, cuDeviceGetCount(&count));
    sim_reset();
    CU(cuDeviceGetCount(&count));
}

TEST(the_nth_of_all_calls_fails) {
    CUdeviceptr address = 0;
    OPEN_DEVICE_TO_FAIL;
    sim_fail_nth_of_all(3, FAILURE);
    CU_GET(int, count, cuDeviceGetCount(&count));
    CU_GET(CUdevice, device, cuDeviceGet(&device, 0));
    CU_EXPECT(FAILURE, cuMemAlloc_v2(&address, 64));
    CHECK_STR(sim_last_failed(), "cuMemAlloc_v2");
    CU(cuDeviceGet(&device, 0));
}

TEST(init_fails_on_demand) {
    sim_reset();
    sim_fail("cuInit", 1, CUDA_ERROR_SYSTEM_NOT_READY);
    CU_EXPECT(CUDA_ERROR_SYSTEM_NOT_READY, cuInit(0));
    CU(cuInit(0));
    sim_reset();
}

TEST(calls_are_counted) {
    OPEN_DEVICE_TO_FAIL;
    sim_reset();
    CU_GET(int, count, cuDeviceGetCount(&count));
    CU(cuDeviceGetCount(&count));
    CU_GET(CUdevice, device, cuDeviceGet(&device, 0));
    CU_EXPECT(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, 99));
    CHECK_EQ(sim_calls("cuDeviceGetCount"), 2);
    CHECK_EQ(sim_calls("cuDeviceGet"), 2);
    CHECK_EQ(sim_calls("cuMemAlloc_v2"), 0);
    CHECK_EQ(sim_call_count(), 4);
}

/* As when the driver reports an error of earlier work. */
TEST(a_failing_release_releases) {
    sim_reset();
    open_device(0);
    const CUdeviceptr address = allocate_filled(64, 1);
    sim_fail("cuMemFree_v2", 1, FAILURE);
    CU_EXPECT(FAILURE, cuMemFree_v2(address));
    CHECK_EQ(live_objects().allocations, 0);
    sim_fail("cuMemFree_v2", 1, FAILURE);
    /* the error of the call precedes the planned one */
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(address));
    sim_fail("cuCtxPopCurrent_v2", 1, FAILURE);
    CU_EXPECT(FAILURE, cuCtxPopCurrent_v2(NULL));
    CHECK_EQ(sim_current_context_depth(), 0);
    sim_fail("cuDevicePrimaryCtxRelease_v2", 1, FAILURE);
    CU_EXPECT(FAILURE, cuDevicePrimaryCtxRelease_v2(0));
    check_nothing_left();
    sim_reset();
}

TEST(a_release_that_fails_without_effect_does_not_release) {
    OPEN_DEVICE_TO_FAIL;
    const CUdeviceptr address = allocate_filled(64, 1);
    sim_fail_without_effect("cuMemFree_v2", 1, FAILURE);
    CU_EXPECT(FAILURE, cuMemFree_v2(address));
    CHECK_EQ(live_objects().allocations, 1);
    CU(cuMemFree_v2(address));
}

TEST(the_error_of_failed_work_is_reported_once) {
    OPEN_DEVICE_TO_FAIL;
    OWN_STREAM(stream, CU_STREAM_NON_BLOCKING);
    OWN_STREAM(other, CU_STREAM_NON_BLOCKING);
    OWN_MEMORY(address, 64, 1);
    sim_fail_later("cuMemsetD8Async", 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    CU(cuMemsetD8Async(address, 2, 64, stream));
    check_device_filled(address, 1, 64); /* it did not run */
    CU(cuStreamSynchronize(other));      /* does not report errors of other streams */
    CU_EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    CU(cuStreamSynchronize(stream));
    sim_fail_later("cuMemcpyDtoDAsync_v2", 1, FAILURE);
    CU(cuMemcpyDtoDAsync_v2(address, address + 32, 32, stream));
    CU(cuStreamQuery(other)); /* runs work of all streams */
    CU_EXPECT(FAILURE, cuMemsetD8Async(address, 3, 64, stream)); /* submitting reports the error, too */
    CU(cuMemsetD8Async(address, 4, 64, stream));
    sim_fail_later("cuMemsetD8Async", 1, FAILURE);
    CU(cuMemsetD8Async(address, 5, 64, stream));
    CU_EXPECT(FAILURE, cuCtxSynchronize());
    CU(cuStreamQuery(stream));
    check_device_filled(address, 4, 64);
}

TEST(an_event_after_failed_work_reports_the_error) {
    OPEN_DEVICE_TO_FAIL;
    OWN_STREAM(stream, CU_STREAM_NON_BLOCKING);
    OWN_EVENT(event, CU_EVENT_DISABLE_TIMING);
    OWN_MEMORY(address, 64, 1);
    sim_fail_later("cuMemsetD8Async", 1, FAILURE);
    CU(cuMemsetD8Async(address, 2, 64, stream));
    CU(cuEventRecord(event, stream));
    CU_EXPECT(FAILURE, cuEventSynchronize(event));
    CU_EXPECT(FAILURE, cuEventQuery(event));
    CU_EXPECT(FAILURE, cuStreamQuery(stream));
    CU(cuEventRecord(event, stream));
    CU(cuEventQuery(event));
}
