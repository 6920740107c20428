// SPDX-License-Identifier: Apache-2.0
// Transfers between a file and a GPU in flight: the stand-in holds their copies back until the test has seen
// what it came to see, or lets them fail in the middle.
#include "control.h"
#include "gpu_flight.h"
#include "stance.h"

static const kv_move move = KV_MOVE(3, {6, 0}, {0, 5}, {1, 6});
#define NUM_CHUNKS (3 * 3 * 2)

static const route ways[] = {{PLACE_DEVICE, PLACE_FILE}, {PLACE_FILE, PLACE_DEVICE}};

/* One of a piece a slot: 18 copies of the driver's, four at a time. */
typedef flight disk_flight;
#define disk_flight_close flight_close
static void disk_flight_open(flight *flight, route way) {
    SIM(sim_reset());
    flight_open(flight, .from = way.from, .to = way.to, .file_flags = KVMEM_DISK_BUFFERED, .move = &move,
                .has_queue = true);
    flight_create(flight, it.staging_size = 4 * 480);
}
/* Submits, and returns once the driver has a copy for each slot. */
static void take_off(flight *flight) {
    SIM(sim_reset());
    SIM(sim_hold());
    flight_submit(flight);
    await_calls("cuMemcpyAsync", 4);
}

static void land(flight *flight) {
    flight_land(flight);
    flight_expect_completion(flight, KVMEM_STATUS_OK);
}

static void run(flight *flight) {
    flight_submit(flight);
    land(flight);
}

static void expect_failed(flight *flight, const char *name) {
    flight_expect_end(flight, KVMEM_STATUS_CUDA, name);
    flight_expect_completion(flight, KVMEM_STATUS_CUDA);
}

TEST(in_flight_it_is_in_progress_and_waits_time_out) {
    for (size_t i = 0; i < NUM(ways); i++) {
        OPENED(disk_flight, flight, ways[i]);
        take_off(&flight);
        flight_expect_in_progress(&flight);
        CHECK_EQ(SIM(sim_calls("cuMemcpyAsync")), 4); /* no slot is used before it is free */
        SIM(sim_go());
        land(&flight);
        run(&flight);
    }
}

TEST(a_late_run_ends_at_its_deadline) {
    for (size_t i = 0; i < NUM(ways); i++) {
        OPENED(disk_flight, flight, ways[i]);
        flight_create(&flight, it.staging_size = 4 * 480, it.timeout_ns = SECONDS(1));
        take_off(&flight);
        flight_expect_end(&flight, KVMEM_STATUS_TIMED_OUT, "was not complete after 1000 ms");
        CHECK_HAS(test_last_message(), TEXT("at least 0 of %d bytes", (int)flight_bytes(&flight)));
        flight_expect_completion(&flight, KVMEM_STATUS_TIMED_OUT);
        EXPECT(KVMEM_STATUS_BUSY, kvmem_transfer_submit(flight.transfer, ERR));
        SIM(sim_go());
        kvmem_status status = KVMEM_STATUS_BUSY;
        while (status == KVMEM_STATUS_BUSY) status = kvmem_transfer_submit(flight.transfer, ERR);
        CHECK_EQ(status, KVMEM_STATUS_OK);
        land(&flight);
    }
}

/* What is in flight holds what it touches, and lets go of it when it has landed. */
TEST(handles_may_go_while_it_is_in_flight) {
    for (size_t i = 0; i < NUM(ways); i++) {
        CLEANUP(await_live) const sim_counts before = sim_live_now();
        OPENED(disk_flight, flight, ways[i]);
        take_off(&flight);
        const sim_counts flying = sim_live_now();
        flight_destroy_transfer(&flight);
        side_drop_handles(&flight.source);
        side_drop_handles(&flight.destination);
        expect_still_alive(&flying);
        SIM(sim_go());
        CHECK_EQ(next_completion(flight.queue).status, KVMEM_STATUS_OK);
    }
}

/* Somebody captures a stream meanwhile: the copies go on, and are asked about again. */
TEST(a_question_without_an_answer_fails_nothing) {
    for (size_t i = 0; i < NUM(ways); i++) {
        OPENED(disk_flight, flight, ways[i]);
        take_off(&flight);
        SIM(sim_fail("cuEventQuery", 1, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
        SIM(sim_fail("cuEventQuery", 2, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
        await_calls("cuEventQuery", SIM(sim_calls("cuEventQuery")) + 8);
        EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(flight.transfer, ERR));
        SIM(sim_go());
        land(&flight);
    }
}

/* Whichever copy it is that fails, now or later: the transfer fails, and works when it is submitted again. */
TEST(a_copy_that_fails_in_the_middle_fails_the_transfer) {
    for (uint64_t nth = 1; nth <= NUM_CHUNKS; nth++) {
        for (size_t i = 0; i < 2 * NUM(ways); i++) {
            OPENED(disk_flight, flight, ways[i % NUM(ways)]);
            if (i / NUM(ways) == 0) SIM(sim_fail("cuMemcpyAsync", nth, CUDA_ERROR_INVALID_VALUE));
            else SIM(sim_fail_later("cuMemcpyAsync", nth, CUDA_ERROR_ECC_UNCORRECTABLE));
            flight_submit(&flight);
            expect_failed(&flight,
                          i / NUM(ways) == 0 ? "CUDA_ERROR_INVALID_VALUE" : "CUDA_ERROR_ECC_UNCORRECTABLE");
            run(&flight);
        }
    }
}

/* The nth call of the function is refused when so many copies have begun: they are waited for. */
static void refuse(const char *function, uint64_t nth, uint64_t copies) {
    for (size_t i = 0; i < NUM(ways); i++) {
        OPENED(disk_flight, flight, ways[i]);
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

/* A copy that the driver refuses may follow some that it has begun. */
TEST_CALL(after_a_refused_copy_what_was_begun_is_waited_for, refuse("cuMemcpyAsync", 3, 3))

/* Where the mark behind a copy could not be, there is no mark to ask. */
TEST_CALL(after_a_refused_mark_its_copy_is_waited_for, refuse("cuEventRecord", 1, 1))

/* A file that fails while the GPU copies: the transfer waits for the GPU, then tells of the file. */
TEST(a_file_that_fails_while_the_gpu_copies) {
    OPENED(disk_flight, flight, ways[1]);
    file_side_truncate(&flight.source.file, flight.source.model.size / 2);
    SIM(sim_hold());
    flight_submit(&flight);
    await_calls("cuMemcpyAsync", 1);
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait(flight.transfer, MILLISECONDS(20), ERR));
    SIM(sim_go());
    flight_expect_end(&flight, KVMEM_STATUS_IO, "truncated");
}
