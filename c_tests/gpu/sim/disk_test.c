// SPDX-License-Identifier: Apache-2.0
// Transfers between a file and a GPU in flight: the stand-in holds their copies back until the test has seen
// what it came to see, or lets them fail in the middle.
#include "control.h"
#include "patience.h"
#include "sides.h"
#include "stance.h"

static const kvmem_block_pair pairs[] = {{6, 0}, {0, 5}, {1, 6}};
static const kv_move move = {pairs, NUM(pairs), 0, 0, 3};
#define NUM_CHUNKS (3 * 3 * 2)

typedef struct flight {
    scratch directory;
    side device;
    file_side file;
    kvmem_queue *queue;
    kvmem_transfer *transfer;
    bool to_file;
} flight;

/* A piece a slot: 18 copies of the driver's, four at a time. */
static void flight_open(flight *flight, bool to_file) {
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    SIM(sim_reset());
    *flight = (struct flight){.to_file = to_file, .directory = scratch_create(temporary_directory())};
    side_open(&flight->device, PLACE_DEVICE, 0, &config, NULL, 7);
    file_side_open(&flight->file, &config, NULL, &flight->directory, KVMEM_DISK_BUFFERED, 8);
    EXPECT_OK(kvmem_queue_create(&flight->queue, ERR));
    kvmem_transfer_options options = WITH(kv_transfer_options(&move), it.queue = flight->queue,
                                          it.user_data = 42, it.staging_size = 4 * 480);
    const kvmem_layout *device = flight->device.model.layout;
    const kvmem_layout *file = flight->file.model.layout;
    EXPECT_OK(kvmem_transfer_create(to_file ? device : file, to_file ? file : device, &options,
                                    &flight->transfer, ERR));
}

static void expect_landed(flight *flight) {
    const kvmem_completion completion = next_completion(flight->queue);
    CHECK_EQ(completion.user_data, 42);
    CHECK_EQ(completion.status, KVMEM_STATUS_OK);
    CHECK_EQ(completion.bytes, NUM_CHUNKS * 480);
    kv_side *source = flight->to_file ? &flight->device.model : &flight->file.model;
    kv_side *destination = flight->to_file ? &flight->file.model : &flight->device.model;
    kv_expect_moved(destination, source, &move);
    side_check(&flight->device);
    file_side_check(&flight->file);
}

static void expect_failed(flight *flight, const char *name) {
    EXPECT_MESSAGE(KVMEM_STATUS_CUDA, name, kvmem_transfer_wait(flight->transfer, PATIENCE, ERR));
    const kvmem_completion completion = next_completion(flight->queue);
    CHECK_EQ(completion.status, KVMEM_STATUS_CUDA);
    CHECK_EQ(completion.bytes, 0);
}

static void flight_close(flight *flight) {
    CALL(kvmem_transfer_destroy(flight->transfer));
    CALL(kvmem_queue_destroy(flight->queue));
    side_close(&flight->device);
    CALL(file_side_close(&flight->file));
    scratch_remove(&flight->directory);
}

static void take_off(flight *flight) {
    SIM(sim_reset());
    SIM(sim_hold());
    EXPECT_OK(kvmem_transfer_submit(flight->transfer, ERR));
    await_copies(4); /* one a slot */
}

TEST(in_flight_it_is_in_progress_and_waits_time_out) {
    for (int to_file = 0; to_file < 2; to_file++) {
        OPENED(flight, flight, to_file);
        take_off(&flight);
        EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(flight.transfer, ERR));
        EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait(flight.transfer, MILLISECONDS(20), ERR));
        EXPECT(KVMEM_STATUS_BUSY, kvmem_transfer_submit(flight.transfer, ERR));
        CHECK_EQ(SIM(sim_calls("cuMemcpyAsync")), 4); /* no slot is used before it is free */
        SIM(sim_go());
        EXPECT_OK(kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
        expect_landed(&flight);
        EXPECT_OK(kvmem_transfer_submit(flight.transfer, ERR));
        expect_landed(&flight);
    }
}

/* What is in flight holds what it touches, and lets go of it when it has landed. */
TEST(handles_may_go_while_it_is_in_flight) {
    for (int to_file = 0; to_file < 2; to_file++) {
        CLEANUP(await_live) const sim_counts before = sim_live_now();
        OPENED(flight, flight, to_file);
        take_off(&flight);
        const sim_counts flying = sim_live_now();
        CALL(kvmem_transfer_destroy(flight.transfer));
        CALL(kvmem_layout_destroy(flight.device.model.layout));
        CALL(kvmem_layout_destroy(flight.file.model.layout));
        for (size_t i = 0; i < flight.device.model.num_regions; i++) {
            CALL(kvmem_region_destroy(flight.device.model.regions[i]));
            flight.device.model.regions[i] = NULL;
        }
        CALL(kvmem_region_destroy(flight.device.whole));
        flight.transfer = NULL;
        flight.device.model.layout = flight.file.model.layout = NULL;
        flight.device.whole = NULL;
        const sim_counts still_flying = sim_live_now();
        CHECK_EQ(still_flying.allocations, flying.allocations);
        CHECK_EQ(still_flying.registrations, flying.registrations);
        CHECK_EQ(still_flying.streams, flying.streams);
        SIM(sim_go());
        CHECK_EQ(next_completion(flight.queue).status, KVMEM_STATUS_OK);
    }
}

/* Somebody captures a stream meanwhile: the copies go on, and are asked about again. */
TEST(a_question_without_an_answer_fails_nothing) {
    for (int to_file = 0; to_file < 2; to_file++) {
        OPENED(flight, flight, to_file);
        take_off(&flight);
        SIM(sim_fail("cuEventQuery", 1, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
        SIM(sim_fail("cuEventQuery", 2, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
        const uint64_t queries = SIM(sim_calls("cuEventQuery"));
        const uint64_t end = patience_end();
        while (SIM(sim_calls("cuEventQuery")) < queries + 8) {
            patience_wait(end, "the copies to be asked about");
        }
        EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(flight.transfer, ERR));
        SIM(sim_go());
        EXPECT_OK(kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
        expect_landed(&flight);
    }
}

/* Whichever copy it is that fails, now or later: the transfer fails, and works when it is submitted again. */
TEST(a_copy_that_fails_in_the_middle_fails_the_transfer) {
    for (uint64_t nth = 1; nth <= NUM_CHUNKS; nth++) {
        for (int way = 0; way < 4; way++) {
            OPENED(flight, flight, way % 2);
            if (way / 2 == 0) {
                SIM(sim_fail("cuMemcpyAsync", nth, CUDA_ERROR_INVALID_VALUE));
            } else {
                SIM(sim_fail_later("cuMemcpyAsync", nth, CUDA_ERROR_ECC_UNCORRECTABLE));
            }
            EXPECT_OK(kvmem_transfer_submit(flight.transfer, ERR));
            expect_failed(&flight,
                          way / 2 == 0 ? "CUDA_ERROR_INVALID_VALUE" : "CUDA_ERROR_ECC_UNCORRECTABLE");
            EXPECT_OK(kvmem_transfer_submit(flight.transfer, ERR));
            expect_landed(&flight);
        }
    }
}

/* The nth call of the function is refused when so many copies have begun: they are waited for. */
static void refuse(const char *function, uint64_t nth, uint64_t copies) {
    for (int to_file = 0; to_file < 2; to_file++) {
        OPENED(flight, flight, to_file);
        SIM(sim_hold());
        SIM(sim_fail(function, nth, CUDA_ERROR_INVALID_VALUE));
        EXPECT_OK(kvmem_transfer_submit(flight.transfer, ERR));
        await_copies(copies);
        EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait(flight.transfer, MILLISECONDS(20), ERR));
        SIM(sim_go());
        expect_failed(&flight, "CUDA_ERROR_INVALID_VALUE");
        EXPECT_OK(kvmem_transfer_submit(flight.transfer, ERR));
        expect_landed(&flight);
    }
}

/* A copy that the driver refuses may follow some that it has begun. */
TEST_CALL(after_a_refused_copy_what_was_begun_is_waited_for, refuse("cuMemcpyAsync", 3, 3))

/* Where the mark behind a copy could not be, there is no mark to ask. */
TEST_CALL(after_a_refused_mark_its_copy_is_waited_for, refuse("cuEventRecord", 1, 1))

/* A file that fails while the GPU copies: the transfer waits for the GPU, then tells of the file. */
TEST(a_file_that_fails_while_the_gpu_copies) {
    OPENED(flight, flight, false);
    file_side_truncate(&flight.file, flight.file.model.size / 2);
    SIM(sim_hold());
    EXPECT_OK(kvmem_transfer_submit(flight.transfer, ERR));
    await_copies(1);
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait(flight.transfer, MILLISECONDS(20), ERR));
    SIM(sim_go());
    EXPECT_MESSAGE(KVMEM_STATUS_IO, "truncated", kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
}
