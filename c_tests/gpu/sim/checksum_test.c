// SPDX-License-Identifier: Apache-2.0
// Checksums of GPU memory if driver calls fail, in kvmem_layout_checksum and at the end of transfers.
#include "control.h"
#include "gpu_flight.h"
#include "patience.h"
#include "caller_context.h"

#include <pthread.h>

static const uint32_t blocks[] = {6, 0, 3};

typedef side device_side;
#define device_side_close side_close
static void device_side_open(side *side) {
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    SIM(sim_reset());
    side_open(side, PLACE_DEVICE, 0, &config, NULL, 7);
}

static void expect_checksums(const side *side, const uint32_t *checksums) {
    for (size_t i = 0; i < NUM(blocks); i++)
        CHECK_EQ(checksums[i], crc_of_block(&side->model, blocks[i], 0, 3));
}

static void check_checksums(const side *side) {
    uint32_t checksums[NUM(blocks)];
    EXPECT_OK(kvmem_layout_checksum(side->model.layout, blocks, NUM(blocks), KVMEM_TIMEOUT_FOREVER, checksums,
                                    ERR));
    expect_checksums(side, checksums);
}

TEST(failed_calls_are_reported_and_the_next_checksum_works) {
    static const char *const calls[] = {"cuMemsetD8Async", "cuMemcpyAsync", "cuLaunchKernel"};
    OPENED(device_side, side);
    for (size_t i = 0; i < 2 * NUM(calls); i++) {
        uint32_t checksums[NUM(blocks)] = {1, 2, 3};
        (i % 2 ? SIM(sim_fail_later) : SIM(sim_fail))(calls[i / 2], 1, CUDA_ERROR_LAUNCH_FAILED);
        EXPECT_MESSAGE(KVMEM_STATUS_CUDA, "checksums",
                       kvmem_layout_checksum(side.model.layout, blocks, NUM(blocks), KVMEM_TIMEOUT_FOREVER, checksums, ERR));
        CHECK_EQ(checksums[0], 1);
        check_checksums(&side);
    }
}

/* Blocks are copied to the host if the kernel cannot be loaded. */
TEST(without_the_kernel_the_host_computes_checksums) {
    OPENED(device_side, side);
    SIM(sim_fail("cuModuleLoadData", 1, CUDA_ERROR_INVALID_IMAGE));
    check_checksums(&side);
    CHECK_STR(SIM(sim_last_failed()), "cuModuleLoadData");
    CHECK_EQ(SIM(sim_calls("cuLaunchKernel")), 0);
    check_checksums(&side);
    CHECK_EQ(SIM(sim_calls("cuLaunchKernel")), 1);
}

typedef struct summing {
    side *side;
    uint32_t checksums[NUM(blocks)];
    kvmem_status status;
} summing;

static void *compute_checksums(void *argument) {
    summing *mine = argument;
    mine->status =
        kvmem_layout_checksum(mine->side->model.layout, blocks, NUM(blocks), KVMEM_TIMEOUT_FOREVER,
                              mine->checksums, NULL);
    return NULL;
}

/* As if another thread captures a stream: the kernel still runs, so kvmem must wait for it. */
TEST(a_query_that_fails_is_repeated) {
    OPENED(device_side, side);
    check_checksums(&side);
    SIM(sim_reset());
    SIM(sim_hold());
    SIM(sim_fail("cuStreamQuery", 1, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
    summing summing = {.side = &side};
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, compute_checksums, &summing), 0);
    await_calls("cuStreamQuery", 4);
    SIM(sim_go());
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(summing.status, KVMEM_STATUS_OK);
    expect_checksums(&side, summing.checksums);
}

/* The kernel waits behind work of the engine that may run for any time. The layout is held until it has
   run. */
TEST(a_checksum_beside_work_that_does_not_end_keeps_to_its_timeout) {
    OPENED(device_side, side);
    check_checksums(&side);
    uint32_t checksums[NUM(blocks)] = {1, 2, 3};
    SIM(sim_hold());
    EXPECT_MESSAGE(KVMEM_STATUS_TIMED_OUT, "the GPU has other work",
                   kvmem_layout_checksum(side.model.layout, blocks, NUM(blocks), MILLISECONDS(50), checksums, ERR));
    CHECK_EQ(checksums[0], 1);
    SIM(sim_go());
    check_checksums(&side);
}

/* The blocks have moved, and the kernel that verifies them waits for other work. */
TEST(a_verification_beside_work_that_does_not_end_can_be_cancelled) {
    OPENED(flight, flight, .from = PLACE_SYSTEM, .to = PLACE_DEVICE);
    flight_create(&flight, it.transfer.method = KVMEM_METHOD_CUDA_COPY,
                  it.transfer.flags = KVMEM_TRANSFER_VERIFY);
    flight_run(&flight);
    SIM(sim_reset());
    SIM(sim_hold_call("cuLaunchKernel"));
    flight_submit(&flight);
    const uint64_t end = patience_end();
    while (SIM(sim_held_calls()) == 0) patience_wait(end, "the kernel that verifies");
    SIM(sim_hold());
    SIM(sim_go_calls());
    EXPECT_OK(kvmem_transfer_cancel(flight.transfer, ERR));
    EXPECT(KVMEM_STATUS_CANCELLED, kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
    SIM(sim_go());
    flight_run(&flight);
}

/* If verification fails, the transfer fails. It can run again. */
TEST(a_failed_verification_fails_the_transfer) {
    SIM(sim_reset());
    OPENED(flight, flight, .from = PLACE_DEVICE, .to = PLACE_SYSTEM);
    flight_create(&flight, it.transfer.flags = KVMEM_TRANSFER_VERIFY);
    RUN(flight.transfer);
    SIM(sim_reset());
    SIM(sim_fail_later("cuLaunchKernel", 1, CUDA_ERROR_LAUNCH_FAILED));
    flight_submit(&flight);
    await_calls("cuLaunchKernel", 1);
    flight_expect_end(&flight, KVMEM_STATUS_CUDA, "verify moved blocks");
    flight_run(&flight);
}
