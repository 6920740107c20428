// SPDX-License-Identifier: Apache-2.0
// GPU copies in flight: the stand-in holds their work back until the test has seen what it came to see, or
// lets it fail when it is done.
#include "control.h"
#include "elastic_side.h"
#include "patience.h"
#include "sides.h"
#include "stance.h"

static const kvmem_block_pair pairs[] = {{6, 0}, {0, 5}, {1, 6}};
static const kv_move move = {pairs, NUM(pairs), 0, 0, 3};

typedef struct flight {
    side source;
    side destination;
    kvmem_queue *queue;
    kvmem_transfer *transfer;
} flight;

static void prepare_from(flight *flight, place place) {
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    SIM(sim_reset());
    side_open(&flight->source, place, 0, &config, NULL, 7);
    side_open(&flight->destination, PLACE_PINNED, 0, &config, NULL, 8);
    EXPECT_OK(kvmem_queue_create(&flight->queue, ERR));
    kvmem_transfer_options options = WITH(kv_transfer_options(&move), it.queue = flight->queue,
                                          it.user_data = 42);
    options.path = KVMEM_PATH_CUDA_COPY; /* whose copies are counted and fail here */
    EXPECT_OK(kvmem_transfer_create(flight->source.model.layout, flight->destination.model.layout, &options,
                                    &flight->transfer, ERR));
}

static void flight_open(flight *flight) {
    prepare_from(flight, PLACE_DEVICE);
}

static void expect_landed(flight *flight) {
    const kvmem_completion completion = next_completion(flight->queue);
    CHECK_EQ(completion.user_data, 42);
    CHECK_EQ(completion.status, KVMEM_STATUS_OK);
    CHECK_EQ(completion.bytes, 3 * 3 * 2 * 480);
    side_check_moved(&flight->destination, &flight->source, &move);
}

static void flight_close(flight *flight) {
    CALL(kvmem_transfer_destroy(flight->transfer));
    CALL(kvmem_queue_destroy(flight->queue));
    side_close(&flight->source);
    side_close(&flight->destination);
}

/* Submits, and returns once the driver has all of it. */
static void take_off(flight *flight) {
    SIM(sim_reset());
    SIM(sim_hold());
    EXPECT_OK(kvmem_transfer_submit(flight->transfer, ERR));
    GET(kvmem_transfer_info, info, kvmem_transfer_get_info, flight->transfer);
    await_copies(info.num_moves);
}

TEST(in_flight_it_is_in_progress_and_waits_time_out) {
    OPENED(flight, flight);
    take_off(&flight);
    EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(flight.transfer, ERR));
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait(flight.transfer, 0, ERR));
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait(flight.transfer, MILLISECONDS(20), ERR));
    EXPECT(KVMEM_STATUS_BUSY, kvmem_transfer_submit(flight.transfer, ERR));
    kvmem_completion completion;
    size_t count = 1;
    EXPECT_OK(kvmem_queue_poll(flight.queue, &completion, 1, &count, ERR));
    CHECK_EQ(count, 0);
    SIM(sim_go());
    EXPECT_OK(kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
    expect_landed(&flight);
    EXPECT_OK(kvmem_transfer_submit(flight.transfer, ERR));
    expect_landed(&flight);
}

/* Nothing waits unasked: who shrinks is told, and may come again. */
TEST(memory_in_flight_is_not_taken_away) {
    CLEANUP(flight_close) flight flight;
    prepare_from(&flight, PLACE_ELASTIC);
    kvmem_layout *layout = flight.source.model.layout;
    const uint64_t committed = elastic_layout_memory(layout).num_committed;
    take_off(&flight);
    EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "a transfer in flight", kvmem_layout_resize(layout, 0, ERR));
    CHECK_EQ(elastic_layout_memory(layout).num_committed, committed);
    SIM(sim_go());
    EXPECT_OK(kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
    expect_landed(&flight);
    EXPECT_OK(kvmem_layout_resize(layout, 0, ERR));
    CHECK_EQ(elastic_layout_memory(layout).num_committed, 0);
}

#define EXTENT (2 * MIB)

TEST(extents_in_flight_are_not_decommitted) {
    static const kvmem_block_pair one[] = {{0, 1}};
    const kv_move first = {one, 1, 0, 0, 3};
    kvmem_layout_config config = WITH(kv_config(&kv_kinds[0]), it.num_blocks = 2, it.inner_dim = 512,
                                      it.page_size = 512, it.num_layers = 2);
    const uint64_t block = kv_block_stride(&config);
    CHECK_EQ(block, EXTENT);
    kvmem_region *region = region_create_elastic(2 * EXTENT, EXTENT, 0);
    elastic_parts parts;
    elastic_parts_open(&parts, &config, region, 0);
    GET(kvmem_layout *, layout, kvmem_layout_build, &parts.options);
    EXPECT_OK(kvmem_region_commit(region, 0, 2 * EXTENT, ERR));
    side host;
    side_open(&host, PLACE_PINNED, 0, &config, NULL, 1);
    kv_move move = first;
    move.num_layers = 2;
    kvmem_transfer_options options = WITH(kv_transfer_options(&move), it.path = KVMEM_PATH_CUDA_COPY);
    GET(kvmem_transfer *, transfer, kvmem_transfer_create, layout, host.model.layout, &options);
    SIM(sim_reset());
    SIM(sim_hold());
    EXPECT_OK(kvmem_transfer_submit(transfer, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "the 2097152 bytes at offset 0", kvmem_region_decommit(region, 0, EXTENT, ERR));
    EXPECT(KVMEM_STATUS_BUSY, kvmem_region_decommit(region, 0, 2 * EXTENT, ERR));
    EXPECT_OK(kvmem_region_decommit(region, EXTENT, EXTENT, ERR)); /* the other block's */
    SIM(sim_go());
    EXPECT_OK(kvmem_transfer_wait(transfer, PATIENCE, ERR));
    EXPECT_OK(kvmem_region_decommit(region, 0, EXTENT, ERR));
    CALL(kvmem_transfer_destroy(transfer));
    CALL(kvmem_layout_destroy(layout));
    elastic_parts_close(&parts);
    CALL(kvmem_region_destroy(region));
    side_close(&host);
}

/* Handles 0 to 3 of a transfer in flight. */
enum { SOURCE, DESTINATION, TRANSFER, QUEUE, NUM_HANDLES };

static void destroy_handle(flight *flight, int handle) {
    if (handle == TRANSFER) {
        CALL(kvmem_transfer_destroy(flight->transfer));
        flight->transfer = NULL;
    } else if (handle == QUEUE) {
        CALL(kvmem_queue_destroy(flight->queue));
        flight->queue = NULL;
    } else {
        side *side = handle == SOURCE ? &flight->source : &flight->destination;
        CALL(kvmem_layout_destroy(side->model.layout));
        side->model.layout = NULL;
        for (size_t i = 0; i < side->model.num_regions; i++) {
            CALL(kvmem_region_destroy(side->model.regions[i]));
            side->model.regions[i] = NULL;
        }
        CALL(kvmem_region_destroy(side->whole));
        side->whole = NULL;
    }
}

/* What is in flight holds what it touches, and lets go of it when it has landed. */
static void destroy_in_order_while_in_flight(const int *order) {
    CLEANUP(await_live) const sim_counts before = sim_live_now();
    OPENED(flight, flight);
    take_off(&flight);
    const sim_counts flying = sim_live_now();
    for (int i = 0; i < NUM_HANDLES; i++) {
        destroy_handle(&flight, order[i]);
    }
    const sim_counts still_flying = sim_live_now();
    CHECK_EQ(still_flying.allocations, flying.allocations);
    CHECK_EQ(still_flying.registrations, flying.registrations);
    CHECK_EQ(still_flying.streams, flying.streams);
    SIM(sim_go());
}

TEST(handles_may_go_in_any_order_while_in_flight) {
    in_every_order(NUM_HANDLES, destroy_in_order_while_in_flight);
}

/* The driver tells of a failed copy when it is waited for. */
TEST(a_copy_that_fails_later_fails_its_transfer_alone) {
    flight failing;
    flight other;
    flight_open(&failing);
    flight_open(&other);
    SIM(sim_fail_later("cuMemcpyAsync", 2, CUDA_ERROR_ECC_UNCORRECTABLE));
    EXPECT_OK(kvmem_transfer_submit(failing.transfer, ERR));
    EXPECT(KVMEM_STATUS_CUDA, kvmem_transfer_wait(failing.transfer, PATIENCE, ERR));
    kvmem_error_cause cause;
    CHECK_EQ(kvmem_error_get_cause(test_last_error(), &cause), KVMEM_STATUS_OK);
    CHECK_EQ(cause.domain, KVMEM_DOMAIN_CUDA);
    CHECK_STR(cause.name, "CUDA_ERROR_ECC_UNCORRECTABLE");
    const kvmem_completion completion = next_completion(failing.queue);
    CHECK_EQ(completion.user_data, 42);
    CHECK_EQ(completion.status, KVMEM_STATUS_CUDA);
    CHECK_EQ(completion.bytes, 0);
    EXPECT_OK(kvmem_transfer_submit(other.transfer, ERR));
    expect_landed(&other);
    EXPECT_OK(kvmem_transfer_submit(failing.transfer, ERR));
    expect_landed(&failing);
    flight_close(&failing);
    flight_close(&other);
}

/* A copy that the driver refuses may follow one that it has begun: that one is waited for. */
TEST(after_a_refused_copy_what_was_begun_is_waited_for) {
    OPENED(flight, flight);
    SIM(sim_hold());
    SIM(sim_fail("cuMemcpyAsync", 3, CUDA_ERROR_INVALID_VALUE));
    EXPECT_OK(kvmem_transfer_submit(flight.transfer, ERR));
    await_copies(3);
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait(flight.transfer, MILLISECONDS(20), ERR));
    SIM(sim_go());
    EXPECT(KVMEM_STATUS_CUDA, kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
    CHECK_EQ(next_completion(flight.queue).status, KVMEM_STATUS_CUDA);
    EXPECT_OK(kvmem_transfer_submit(flight.transfer, ERR));
    expect_landed(&flight);
}

/* Somebody captures a stream, or an error of earlier work comes late: the question whether a run is over gets
   an error for an answer, and the copies go on all the same. */
TEST(a_question_without_an_answer_lets_nothing_go) {
    static const CUresult answers[] = {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_OUT_OF_MEMORY,
                                       CUDA_ERROR_LAUNCH_FAILED};
    for (size_t i = 0; i < NUM(answers); i++) {
        OPENED(flight, flight);
        take_off(&flight);
        const sim_counts flying = sim_live_now();
        SIM(sim_fail("cuStreamQuery", 1, answers[i]));
        const uint64_t queries = SIM(sim_calls("cuStreamQuery"));
        const uint64_t end = patience_end();
        while (SIM(sim_calls("cuStreamQuery")) < queries + 4) { /* whoever asks first gets it */
            EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(flight.transfer, ERR));
            patience_wait(end, "the run to be asked about");
        }
        CHECK_STR(SIM(sim_last_failed()), "cuStreamQuery");
        EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(flight.transfer, ERR));
        destroy_handle(&flight, SOURCE);
        const sim_counts still_flying = sim_live_now();
        CHECK_EQ(still_flying.allocations, flying.allocations);
        SIM(sim_go());
        /* All bytes have arrived: only an error that says that work has failed is told. */
        if (answers[i] == CUDA_ERROR_LAUNCH_FAILED) {
            EXPECT_MESSAGE(KVMEM_STATUS_CUDA, "CUDA_ERROR_LAUNCH_FAILED",
                           kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
        } else {
            EXPECT_OK(kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
        }
    }
}

/* The same for the mark of a run on a stream of the caller's. */
TEST(a_mark_without_an_answer_lets_nothing_go) {
    CUstream stream = NULL;
    OPENED(flight, flight);
    RETAIN_DEVICE(0);
    CU_ON(0, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    SIM(sim_hold());
    EXPECT_OK(kvmem_transfer_submit_on_stream(flight.transfer, stream, ERR));
    SIM(sim_fail("cuEventQuery", 1, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
    const uint64_t queries = SIM(sim_calls("cuEventQuery"));
    const uint64_t end = patience_end();
    while (SIM(sim_calls("cuEventQuery")) < queries + 4) {
        EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(flight.transfer, ERR));
        patience_wait(end, "the run to be asked about");
    }
    CHECK_STR(SIM(sim_last_failed()), "cuEventQuery");
    SIM(sim_go());
    EXPECT_OK(kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
    expect_landed(&flight);
    CU_ON(0, cuStreamDestroy_v2(stream));
}

/* What was put on the stream goes on, and nobody can be asked when it is over: the run ends with the driver's
   error, and its memory stays. */
TEST(a_run_without_a_mark_ends_and_keeps_its_memory) {
    CUstream stream = NULL;
    CLEANUP(flight_close) flight flight;
    prepare_from(&flight, PLACE_ELASTIC);
    RETAIN_DEVICE(0);
    CU_ON(0, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    SIM(sim_hold());
    SIM(sim_fail("cuEventRecord", SIM_EVERY_CALL, CUDA_ERROR_OUT_OF_MEMORY));
    EXPECT_OK(kvmem_transfer_submit_on_stream(flight.transfer, stream, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_MEMORY, "until the stream has passed it",
                   kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
    CHECK_EQ(next_completion(flight.queue).status, KVMEM_STATUS_OUT_OF_MEMORY);
    EXPECT(KVMEM_STATUS_OUT_OF_MEMORY, kvmem_transfer_wait_on_stream(flight.transfer, 0, stream, ERR));
    EXPECT(KVMEM_STATUS_BUSY, kvmem_layout_resize(flight.source.model.layout, 0, ERR));
    const sim_counts flying = sim_live_now();
    for (int handle = 0; handle < NUM_HANDLES; handle++) {
        destroy_handle(&flight, handle);
    }
    const sim_counts left = sim_live_now();
    CHECK_EQ(left.mappings, flying.mappings);
    CHECK_EQ(left.registrations, flying.registrations);
    SIM(sim_reset()); /* now it copies */
    enter_device(0);
    CU(cuStreamSynchronize(stream));
    CU(cuStreamDestroy_v2(stream));
    leave_device(0);
}

/* More GPU copies in flight than anybody keeps threads for. */
#define MANY 40

static void prepare_many(flight *flights) {
    for (size_t i = 0; i < MANY; i++) {
        flight_open(&flights[i]);
    }
    SIM(sim_hold());
    for (size_t i = 0; i < MANY; i++) {
        EXPECT_OK(kvmem_transfer_submit(flights[i].transfer, ERR));
    }
}

static void land_many(flight *flights) {
    SIM(sim_go());
    for (size_t i = 0; i < MANY; i++) {
        expect_landed(&flights[i]);
        flight_close(&flights[i]);
    }
}

TEST(a_host_copy_does_not_wait_for_gpus) {
    static const kvmem_block_pair blocks[] = {{0, 1}, {2, 3}};
    const kv_move host_move = {blocks, NUM(blocks), 0, 0, 3};
    CLEANUP(test_free) flight *flights = test_allocate(MANY * sizeof(*flights));
    prepare_many(flights);
    kvmem_layout_config config = WITH(kv_config(&kv_kinds[0]), it.page_size = 64);
    config.inner_dim = 1024; /* blocks of 768 KiB: too large to be copied on the spot */
    kv_side source;
    kv_side destination;
    kv_side_open(&source, &config, NULL, 1);
    kv_side_open(&destination, &config, NULL, 2);
    GET(kvmem_queue *, queue, kvmem_queue_create);
    kvmem_transfer_options options = WITH(kv_transfer_options(&host_move), it.queue = queue);
    GET(kvmem_transfer *, transfer, kvmem_transfer_create, source.layout, destination.layout, &options);
    EXPECT_OK(kvmem_transfer_submit(transfer, ERR));
    CHECK_EQ(next_completion(queue).status, KVMEM_STATUS_OK);
    kv_side_check_moved(&destination, &source, &host_move);
    CALL(kvmem_transfer_destroy(transfer));
    CALL(kvmem_queue_destroy(queue));
    kv_side_close(&source);
    kv_side_close(&destination);
    land_many(flights);
}

TEST(all_that_was_submitted_is_handed_to_the_driver) {
    CLEANUP(test_free) flight *flights = test_allocate(MANY * sizeof(*flights));
    prepare_many(flights);
    GET(kvmem_transfer_info, info, kvmem_transfer_get_info, flights[0].transfer);
    await_copies(MANY * info.num_moves); /* none waits for another: the driver orders nothing between them */
    land_many(flights);
}
