// SPDX-License-Identifier: Apache-2.0
// Transfers between a file and a GPU in flight. The stand-in holds their copies back until the test has
// checked them, or makes a copy fail.
#include "control.h"
#include "gpu_flight.h"
#include "caller_context.h"

static const kv_move move = KV_MOVE(3, {6, 0}, {0, 5}, {1, 6});
#define NUM_CHUNKS (3 * 3 * 2)

static const route routes[] = {{PLACE_DEVICE, PLACE_FILE}, {PLACE_FILE, PLACE_DEVICE}};

/* With slots of one piece: 18 copies of the driver, four at a time. */
typedef flight disk_flight;
#define disk_flight_close flight_close
static void disk_flight_open(flight *flight, route route) {
    SIM(sim_reset());
    flight_open(flight, .from = route.from, .to = route.to, .file_flags = KVMEM_DISK_BUFFERED, .move = &move,
                .has_queue = true);
    flight_create(flight, it.transfer.staging_size = 4 * 480);
}
/* Submits, and waits until the driver has a copy for each slot. */
static void submit_and_hold(flight *flight) {
    SIM(sim_reset());
    SIM(sim_hold());
    flight_submit(flight);
    await_calls("cuMemcpyAsync", 4);
}

static void finish(flight *flight) {
    flight_finish(flight);
    flight_expect_completion(flight, KVMEM_STATUS_OK);
}

static void run(flight *flight) {
    flight_submit(flight);
    finish(flight);
}

static void expect_failed(flight *flight, const char *name) {
    flight_expect_end(flight, KVMEM_STATUS_CUDA, name);
    flight_expect_completion(flight, KVMEM_STATUS_CUDA);
}

TEST(a_transfer_in_flight_is_in_progress_and_waits_time_out) {
    for (size_t i = 0; i < NUM(routes); i++) {
        OPENED(disk_flight, flight, routes[i]);
        submit_and_hold(&flight);
        flight_expect_in_progress(&flight);
        CHECK_EQ(SIM(sim_calls("cuMemcpyAsync")), 4); /* no slot is used before it is free */
        SIM(sim_go());
        finish(&flight);
        run(&flight);
    }
}

static void expect_none(kvmem_queue *queue) {
    kvmem_completion completion;
    size_t count = 1;
    EXPECT_OK(kvmem_queue_wait(queue, 0, &completion, 1, &count, ERR));
    CHECK_EQ(count, 0);
}

/* The driver's copies use the staging memory, the file and the GPU until they end; then that is reported. */
TEST(a_run_fails_at_its_deadline) {
    for (size_t i = 0; i < NUM(routes); i++) {
        OPENED(disk_flight, flight, routes[i]);
        flight_create(&flight, it.transfer.staging_size = 4 * 480, it.run.run_timeout_ns = SECONDS(1),
                      it.transfer.flags = KVMEM_TRANSFER_REPORT_RELEASE);
        submit_and_hold(&flight);
        flight_expect_end(&flight, KVMEM_STATUS_TIMED_OUT, "was not complete after 1000 ms");
        CHECK_HAS(test_last_message(), TEXT("at least 0 of %d bytes", (int)flight_bytes(&flight)));
        flight_expect_completion(&flight, KVMEM_STATUS_TIMED_OUT);
        EXPECT(KVMEM_STATUS_BUSY, kvmem_transfer_submit(flight.transfer, NULL, ERR));
        expect_none(flight.queue);
        SIM(sim_go());
        expect_release(flight.queue, FLIGHT_USER_DATA, KVMEM_STATUS_OK);
        expect_none(flight.queue);
        flight_run_in_time(&flight);
    }
}

/* A transfer in flight keeps its memory alive, and releases it at its end. */
TEST(handles_can_be_destroyed_while_in_flight) {
    for (size_t i = 0; i < NUM(routes); i++) {
        CLEANUP(await_live) const sim_counts before = sim_live_now();
        OPENED(disk_flight, flight, routes[i]);
        submit_and_hold(&flight);
        const sim_counts in_flight = sim_live_now();
        flight_destroy_transfer(&flight);
        side_drop_handles(&flight.source);
        side_drop_handles(&flight.destination);
        expect_still_alive(&in_flight);
        SIM(sim_go());
        CHECK_EQ(next_completion(flight.queue).status, KVMEM_STATUS_OK);
    }
}

/* As if another thread captures a stream: the copies still run, and kvmem queries them again. */
TEST(a_query_that_fails_is_repeated) {
    for (size_t i = 0; i < NUM(routes); i++) {
        OPENED(disk_flight, flight, routes[i]);
        submit_and_hold(&flight);
        SIM(sim_fail("cuStreamQuery", 1, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
        SIM(sim_fail("cuStreamQuery", 2, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
        await_calls("cuStreamQuery", SIM(sim_calls("cuStreamQuery")) + 8);
        EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(flight.transfer, ERR));
        SIM(sim_go());
        finish(&flight);
    }
}

/* The nth copy fails, at once or when it runs: the transfer fails, and works when it is submitted again. */
TEST(a_failed_copy_fails_the_transfer) {
    for (uint64_t nth = 1; nth <= NUM_CHUNKS; nth++) {
        for (size_t i = 0; i < 2 * NUM(routes); i++) {
            OPENED(disk_flight, flight, routes[i % NUM(routes)]);
            if (i / NUM(routes) == 0) SIM(sim_fail("cuMemcpyAsync", nth, CUDA_ERROR_INVALID_VALUE));
            else SIM(sim_fail_later("cuMemcpyAsync", nth, CUDA_ERROR_ECC_UNCORRECTABLE));
            flight_submit(&flight);
            expect_failed(&flight,
                          i / NUM(routes) == 0 ? "CUDA_ERROR_INVALID_VALUE" : "CUDA_ERROR_ECC_UNCORRECTABLE");
            run(&flight);
        }
    }
}

/* The nth call of the function fails after this number of copies has begun: kvmem waits for these copies. */
static void fail_after_copies(const char *function, uint64_t nth, uint64_t copies) {
    for (size_t i = 0; i < NUM(routes); i++) {
        OPENED(disk_flight, flight, routes[i]);
        SIM(sim_hold());
        SIM(sim_fail(function, nth, CUDA_ERROR_INVALID_VALUE));
        flight_submit(&flight);
        await_calls("cuMemcpyAsync", copies);
        EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait(flight.transfer, MILLISECONDS(20), ERR));
        SIM(sim_go());
        expect_failed(&flight, "CUDA_ERROR_INVALID_VALUE");
        run(&flight);
    }
}

TEST_CALL(after_a_failed_copy_earlier_copies_are_waited_for, fail_after_copies("cuMemcpyAsync", 3, 3))

/* The copies of another run in the slots of the ring are held back. */
TEST(a_failed_run_is_reported_while_another_uses_its_ring) {
    OPENED(disk_flight, failed, routes[0]);
    OPENED(disk_flight, other, routes[0]);
    SIM(sim_hold());
    SIM(sim_fail("cuMemcpyAsync", 1, CUDA_ERROR_INVALID_VALUE));
    flight_submit(&failed);
    await_calls("cuMemcpyAsync", 1);
    flight_submit(&other);
    await_calls("cuMemcpyAsync", 4);
    expect_failed(&failed, "CUDA_ERROR_INVALID_VALUE");
    flight_expect_in_progress(&other);
    SIM(sim_go());
    finish(&other);
    run(&failed);
}

/* The transfer waits for the GPU, then reports the error of the file. */
TEST(a_file_error_while_the_gpu_copies) {
    OPENED(disk_flight, flight, routes[1]);
    file_side_truncate(&flight.source.file, flight.source.model.size / 2);
    SIM(sim_hold());
    flight_submit(&flight);
    await_calls("cuMemcpyAsync", 1);
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait(flight.transfer, MILLISECONDS(20), ERR));
    SIM(sim_go());
    flight_expect_end(&flight, KVMEM_STATUS_IO, "truncated");
}
