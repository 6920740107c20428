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
                  it.run.flags = KVMEM_SUBMIT_VERIFY);
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

static void expect_computed(const kvmem_transfer *transfer, const uint32_t *expected, size_t count) {
    uint32_t found[16];
    CHECK(count <= NUM(found));
    GET(size_t, number, kvmem_transfer_get_checksums, transfer, found, NUM(found));
    CHECK_EQ(number, count);
    CHECK_BYTES(found, expected, count * sizeof(*found));
}

/* By a kernel on the GPU if that has the destination, and in place in host memory otherwise. A run with given checksums returns those
   that it has compared, without another launch. */
TEST(a_run_lists_what_differs_and_returns_checksums) {
    static const place places[][2] = {
        {PLACE_PINNED, PLACE_DEVICE}, {PLACE_DEVICE, PLACE_PINNED}, {PLACE_DEVICE, PLACE_DEVICE}, {PLACE_DEVICE, PLACE_FILE}};
    for (size_t i = 0; i < NUM(places); i++) {
        SIM(sim_reset());
        OPENED(flight, flight, .from = places[i][0], .to = places[i][1], .file_flags = KVMEM_DISK_BUFFERED);
        const kv_job plain = flight_options(&flight);
        const size_t count = plain.run.num_pairs;
        uint32_t blocks[16], expected[16];
        CHECK(count > 2 && count <= NUM(blocks));
        for (size_t k = 0; k < count; k++) blocks[k] = plain.run.pairs[k].source;
        EXPECT_OK(kvmem_layout_checksum(flight.source.model.layout, blocks, count, KVMEM_TIMEOUT_FOREVER, expected, ERR));
        flight_create(&flight, it.run.flags = KVMEM_SUBMIT_CHECKSUM);
        flight_run(&flight);
        expect_computed(flight.transfer, expected, count);
        uint32_t wrong[16];
        memcpy(wrong, expected, sizeof(wrong));
        wrong[0]++;
        wrong[count - 1]++;
        const kvmem_submit_options compared =
            WITH(plain.run, it.flags = KVMEM_SUBMIT_CHECKSUM, it.checksums = wrong);
        EXPECT_OK(kvmem_transfer_submit(flight.transfer, &compared, ERR));
        EXPECT_MESSAGE(KVMEM_STATUS_CORRUPT, TEXT("2 of %zu moved blocks", count),
                       kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
        expect_computed(flight.transfer, expected, count);
        kv_expect_mismatches(flight.transfer, (uint64_t[]){0, count - 1}, 2);
        RUN_WITH(flight.transfer, &plain.run);
        kv_expect_mismatches(flight.transfer, NULL, 0);
        size_t number = 0;
        EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_transfer_get_checksums(flight.transfer, NULL, 0, &number, ERR));
    }
}

/* If verification fails, the transfer fails. It can run again. */
TEST(a_failed_verification_fails_the_transfer) {
    SIM(sim_reset());
    OPENED(flight, flight, .from = PLACE_DEVICE, .to = PLACE_SYSTEM);
    flight_create(&flight, it.run.flags = KVMEM_SUBMIT_VERIFY);
    RUN(flight.transfer);
    SIM(sim_reset());
    SIM(sim_fail_later("cuLaunchKernel", 1, CUDA_ERROR_LAUNCH_FAILED));
    flight_submit(&flight);
    await_calls("cuLaunchKernel", 1);
    flight_expect_end(&flight, KVMEM_STATUS_CUDA, "verify moved blocks");
    flight_run(&flight);
}
