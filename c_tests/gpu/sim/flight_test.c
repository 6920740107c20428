// SPDX-License-Identifier: Apache-2.0
// GPU copies in flight: the stand-in holds their work back until the test has seen what it came to see, or
// lets it fail when it is done.
#include "control.h"
#include "elastic_side.h"
#include "gpu_flight.h"
#include "patience.h"
#include "stance.h"

static const kv_move move = KV_MOVE(3, {6, 0}, {0, 5}, {1, 6});

/* One by copies of the driver's, which are counted and fail here, to page-locked memory. */
typedef flight copy_flight;
#define copy_flight_close flight_close
static void copy_flight_open(flight *flight, place from) {
    SIM(sim_reset());
    flight_open(flight, .from = from, .to = PLACE_PINNED, .move = &move, .has_queue = true);
    flight_create(flight, it.path = KVMEM_PATH_CUDA_COPY);
}

static void land(flight *flight) {
    flight_expect_completion(flight, KVMEM_STATUS_OK);
    flight_check_moved(flight);
}

static void run(flight *flight) {
    flight_submit(flight);
    land(flight);
}

/* Submits, and returns once the driver has all of it. */
static void take_off(flight *flight) {
    SIM(sim_reset());
    SIM(sim_hold());
    flight_submit(flight);
    await_calls("cuMemcpyAsync", flight_info(flight).num_moves);
}

TEST(in_flight_it_is_in_progress_and_waits_time_out) {
    OPENED(copy_flight, flight, PLACE_DEVICE);
    take_off(&flight);
    flight_expect_in_progress(&flight);
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait(flight.transfer, 0, ERR));
    kvmem_completion completion;
    GET(size_t, count, kvmem_queue_poll, flight.queue, &completion, 1);
    CHECK_EQ(count, 0);
    SIM(sim_go());
    EXPECT_OK(kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
    land(&flight);
    run(&flight);
}

static void submit_when_free(const flight *flight) {
    kvmem_status status = KVMEM_STATUS_BUSY;
    while (status == KVMEM_STATUS_BUSY) status = kvmem_transfer_submit(flight->transfer, ERR);
    CHECK_EQ(status, KVMEM_STATUS_OK);
}

static void expect_late(flight *flight) {
    flight_expect_end(flight, KVMEM_STATUS_TIMED_OUT, "by CUDA copy was not complete after 1000 ms");
    flight_expect_completion(flight, KVMEM_STATUS_TIMED_OUT);
    EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "still in use", kvmem_transfer_submit(flight->transfer, ERR));
    SIM(sim_go());
    submit_when_free(flight);
    flight_land(flight);
    flight_expect_completion(flight, KVMEM_STATUS_OK);
}

/* What the driver has goes on; the memory is in use until then. */
TEST(a_late_run_ends_at_its_deadline) {
    OPENED(copy_flight, flight, PLACE_DEVICE);
    flight_create(&flight, it.path = KVMEM_PATH_CUDA_COPY, it.timeout_ns = SECONDS(1));
    take_off(&flight);
    expect_late(&flight);
}

TEST(a_late_run_on_a_stream_ends_at_its_deadline) {
    OPENED(stream, stream, 0);
    OPENED(copy_flight, flight, PLACE_DEVICE);
    flight_create(&flight, it.path = KVMEM_PATH_CUDA_COPY, it.timeout_ns = SECONDS(1));
    SIM(sim_hold());
    flight_submit_on(&flight, stream.handle);
    expect_late(&flight);
}

/* One that waits for resources of another run has not begun: it never does. */
TEST(a_late_run_that_has_not_begun_never_begins) {
    SIM(sim_reset());
    OPENED(flight, first, .from = PLACE_DEVICE, .to = PLACE_PINNED, .seed = 10);
    OPENED(flight, second, .from = PLACE_DEVICE, .to = PLACE_PINNED, .seed = 20);
    flight_create(&first, it.path = KVMEM_PATH_CUDA_STAGED);
    flight_create(&second, it.path = KVMEM_PATH_CUDA_STAGED, it.timeout_ns = MILLISECONDS(20));
    SIM(sim_hold());
    flight_submit(&first);
    await_calls("cuLaunchKernel", 1);
    const uint64_t launches = SIM(sim_calls("cuLaunchKernel"));
    flight_submit(&second);
    flight_expect_end(&second, KVMEM_STATUS_TIMED_OUT, "at least 0 of");
    CHECK_EQ(SIM(sim_calls("cuLaunchKernel")), launches);
    SIM(sim_go());
    flight_land(&first);
    kv_side_check(&second.destination.model);
}

TEST(a_graph_has_no_deadline) {
    OPENED(stream, stream, 0);
    OPENED(copy_flight, flight, PLACE_DEVICE);
    flight_create(&flight, it.path = KVMEM_PATH_CUDA_COPY, it.timeout_ns = SECONDS(1));
    stream_begin_capture(&stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "graph can't have a deadline",
                   kvmem_transfer_submit_on_stream(flight.transfer, stream.handle, ERR));
    stream_drop_capture(&stream);
    run(&flight);
}

/* Nothing waits unasked: who shrinks is told, and may come again. */
TEST(memory_in_flight_is_not_taken_away) {
    OPENED(copy_flight, flight, PLACE_ELASTIC);
    kvmem_layout *layout = flight.source.model.layout;
    const uint64_t committed = elastic_layout_memory(layout).num_committed;
    take_off(&flight);
    EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "a transfer in flight", kvmem_layout_resize(layout, 0, ERR));
    CHECK_EQ(elastic_layout_memory(layout).num_committed, committed);
    SIM(sim_go());
    EXPECT_OK(kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
    land(&flight);
    EXPECT_OK(kvmem_layout_resize(layout, 0, ERR));
    CHECK_EQ(elastic_layout_memory(layout).num_committed, 0);
}

#define EXTENT (2 * MIB)

TEST(extents_in_flight_are_not_decommitted) {
    static const kvmem_block_pair one[] = {{0, 1}};
    const kv_move first = {one, 1, 0, 0, 2};
    kvmem_layout_config config = WITH(kv_config(&kv_kinds[0]), it.num_blocks = 2, it.inner_dim = 512,
                                      it.page_size = 512, it.num_layers = 2);
    CHECK_EQ(kv_block_stride(&config), EXTENT);
    OWNED(kvmem_region) region = region_create_elastic(2 * EXTENT, EXTENT, 0);
    OPENED(elastic_parts, parts, &config, region, 0);
    OWN(kvmem_layout, layout, kvmem_layout_build, &parts.options);
    EXPECT_OK(kvmem_region_commit(region, 0, 2 * EXTENT, ERR));
    OPENED(side, host, PLACE_PINNED, 0, &config, NULL, 1);
    kvmem_transfer_options options = WITH(kv_transfer_options(&first), it.path = KVMEM_PATH_CUDA_COPY);
    OWN(kvmem_transfer, transfer, kvmem_transfer_create, layout, host.model.layout, &options);
    SIM(sim_reset());
    SIM(sim_hold());
    EXPECT_OK(kvmem_transfer_submit(transfer, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "the 2097152 bytes at offset 0",
                   kvmem_region_decommit(region, 0, EXTENT, ERR));
    EXPECT(KVMEM_STATUS_BUSY, kvmem_region_decommit(region, 0, 2 * EXTENT, ERR));
    EXPECT_OK(kvmem_region_decommit(region, EXTENT, EXTENT, ERR)); /* the other block's */
    SIM(sim_go());
    EXPECT_OK(kvmem_transfer_wait(transfer, PATIENCE, ERR));
    EXPECT_OK(kvmem_region_decommit(region, 0, EXTENT, ERR));
}

/* Handles 0 to 3 of a transfer in flight. */
enum { SOURCE, DESTINATION, TRANSFER, QUEUE, NUM_HANDLES };

static void destroy_handle(flight *flight, int handle) {
    switch (handle) {
    case TRANSFER: flight_destroy_transfer(flight); break;
    case QUEUE:
        CALL(kvmem_queue_destroy(flight->queue));
        flight->queue = NULL;
        break;
    default:
        side_drop_handles(handle == SOURCE ? &flight->source : &flight->destination);
    }
}

/* What is in flight holds what it touches, and lets go of it when it has landed. */
static void destroy_in_order_while_in_flight(const int *order) {
    CLEANUP(await_live) const sim_counts before = sim_live_now();
    OPENED(copy_flight, flight, PLACE_DEVICE);
    take_off(&flight);
    const sim_counts flying = sim_live_now();
    for (int i = 0; i < NUM_HANDLES; i++) destroy_handle(&flight, order[i]);
    expect_still_alive(&flying);
    SIM(sim_go());
}

TEST(handles_may_go_in_any_order_while_in_flight) {
    in_every_order(NUM_HANDLES, destroy_in_order_while_in_flight);
}

/* The driver tells of a failed copy when it is waited for. */
TEST(a_copy_that_fails_later_fails_its_transfer_alone) {
    OPENED(copy_flight, failing, PLACE_DEVICE);
    OPENED(copy_flight, other, PLACE_DEVICE);
    SIM(sim_fail_later("cuMemcpyAsync", 2, CUDA_ERROR_ECC_UNCORRECTABLE));
    flight_submit(&failing);
    flight_expect_end(&failing, KVMEM_STATUS_CUDA, "");
    CHECK_CAUSE(KVMEM_DOMAIN_CUDA, CUDA_ERROR_ECC_UNCORRECTABLE);
    CHECK_STR(test_last_cause().name, "CUDA_ERROR_ECC_UNCORRECTABLE");
    flight_expect_completion(&failing, KVMEM_STATUS_CUDA);
    run(&other);
    run(&failing);
}

/* A copy that the driver refuses may follow one that it has begun: that one is waited for. */
TEST(after_a_refused_copy_what_was_begun_is_waited_for) {
    OPENED(copy_flight, flight, PLACE_DEVICE);
    SIM(sim_hold());
    SIM(sim_fail("cuMemcpyAsync", 3, CUDA_ERROR_INVALID_VALUE));
    flight_submit(&flight);
    await_calls("cuMemcpyAsync", 3);
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait(flight.transfer, MILLISECONDS(20), ERR));
    SIM(sim_go());
    flight_expect_end(&flight, KVMEM_STATUS_CUDA, "");
    CHECK_EQ(next_completion(flight.queue).status, KVMEM_STATUS_CUDA);
    run(&flight);
}

/* The query whether a run is over fails, which is asked until it was made four times more: whoever asks first
   gets the failure. */
static void fail_query(const flight *flight, const char *function, CUresult result) {
    SIM(sim_fail(function, 1, result));
    const uint64_t queries = SIM(sim_calls(function));
    const uint64_t end = patience_end();
    while (SIM(sim_calls(function)) < queries + 4) {
        EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(flight->transfer, ERR));
        patience_wait(end, "the run to be asked about");
    }
    CHECK_STR(SIM(sim_last_failed()), function);
    EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(flight->transfer, ERR));
}

/* Somebody captures a stream, or an error of earlier work comes late: the question whether a run is over gets
   an error for an answer, and the copies go on all the same. */
TEST(a_question_without_an_answer_lets_nothing_go) {
    static const CUresult answers[] = {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_OUT_OF_MEMORY,
                                       CUDA_ERROR_LAUNCH_FAILED};
    for (size_t i = 0; i < NUM(answers); i++) {
        OPENED(copy_flight, flight, PLACE_DEVICE);
        take_off(&flight);
        const sim_counts flying = sim_live_now();
        fail_query(&flight, "cuStreamQuery", answers[i]);
        destroy_handle(&flight, SOURCE);
        expect_still_alive(&flying);
        SIM(sim_go());
        /* All bytes have arrived: only an error that says that work has failed is told. */
        if (answers[i] == CUDA_ERROR_LAUNCH_FAILED) {
            flight_expect_end(&flight, KVMEM_STATUS_CUDA, "CUDA_ERROR_LAUNCH_FAILED");
        } else {
            EXPECT_OK(kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
        }
    }
}

/* The same for the mark of a run on a stream of the caller's. */
TEST(a_mark_without_an_answer_lets_nothing_go) {
    OPENED(copy_flight, flight, PLACE_DEVICE);
    OPENED(stream, stream, 0);
    SIM(sim_hold());
    flight_submit_on(&flight, stream.handle);
    fail_query(&flight, "cuEventQuery", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    SIM(sim_go());
    EXPECT_OK(kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
    land(&flight);
}

/* What was put on the stream goes on, and nobody can be asked when it is over: the run ends with the driver's
   error, and its memory stays. */
TEST(a_run_without_a_mark_ends_and_keeps_its_memory) {
    OPENED(stream, stream, 0);
    OPENED(copy_flight, flight, PLACE_ELASTIC);
    SIM(sim_hold());
    SIM(sim_fail("cuEventRecord", SIM_EVERY_CALL, CUDA_ERROR_OUT_OF_MEMORY));
    flight_submit_on(&flight, stream.handle);
    EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_MEMORY, "until the stream has passed it",
                   kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
    CHECK_EQ(next_completion(flight.queue).status, KVMEM_STATUS_OUT_OF_MEMORY);
    EXPECT(KVMEM_STATUS_OUT_OF_MEMORY, kvmem_transfer_wait_on_stream(flight.transfer, 0, stream.handle, ERR));
    EXPECT(KVMEM_STATUS_BUSY, kvmem_layout_resize(flight.source.model.layout, 0, ERR));
    const sim_counts flying = sim_live_now();
    for (int handle = 0; handle < NUM_HANDLES; handle++) destroy_handle(&flight, handle);
    const sim_counts left = sim_live_now();
    CHECK_EQ(left.mappings, flying.mappings);
    CHECK_EQ(left.registrations, flying.registrations);
    SIM(sim_reset()); /* now it copies */
    stream_await(&stream);
}

/* More GPU copies in flight than anybody keeps threads for. */
#define MANY 40

static flight *submit_many(void) {
    flight *flights = test_allocate(MANY * sizeof(*flights));
    for (size_t i = 0; i < MANY; i++) copy_flight_open(&flights[i], PLACE_DEVICE);
    SIM(sim_hold());
    for (size_t i = 0; i < MANY; i++) flight_submit(&flights[i]);
    return flights;
}

static void land_many(flight *flights) {
    SIM(sim_go());
    for (size_t i = 0; i < MANY; i++) {
        land(&flights[i]);
        flight_close(&flights[i]);
    }
    free(flights);
}

TEST(a_host_copy_does_not_wait_for_gpus) {
    const kv_move host_move = KV_MOVE(3, {0, 1}, {2, 3});
    /* Blocks of 768 KiB: too large to be copied on the spot. */
    const kvmem_layout_config config = WITH(kv_config(&kv_kinds[0]), it.page_size = 64, it.inner_dim = 1024);
    flight *flights = submit_many();
    OPENED(flight, host, .from = PLACE_SYSTEM, .to = PLACE_SYSTEM, .source = &config, .move = &host_move,
           .has_queue = true);
    flight_create(&host, it.path = 0);
    run(&host);
    land_many(flights);
}

TEST(all_that_was_submitted_is_handed_to_the_driver) {
    flight *flights = submit_many();
    /* None waits for another: the driver orders nothing between them. */
    await_calls("cuMemcpyAsync", MANY * flight_info(&flights[0]).num_moves);
    land_many(flights);
}
