// SPDX-License-Identifier: Apache-2.0
// GPU copies in flight. The stand-in holds their work back until the test has checked them, or makes it fail.
#include "control.h"
#include "elastic_side.h"
#include "gpu_flight.h"
#include "patience.h"
#include "caller_context.h"

static const kv_move move = KV_MOVE(3, {6, 0}, {0, 5}, {1, 6});

/* A transfer by copies of the driver, which are counted and can fail, to page-locked memory. */
typedef flight copy_flight;
#define copy_flight_close flight_close
static void copy_flight_open(flight *flight, place from) {
    SIM(sim_reset());
    flight_open(flight, .from = from, .to = PLACE_PINNED, .move = &move, .has_queue = true);
    flight_create(flight, it.transfer.method = KVMEM_METHOD_CUDA_COPY);
}

static void finish(flight *flight) {
    flight_expect_completion(flight, KVMEM_STATUS_OK);
    flight_check_moved(flight);
}

static void run(flight *flight) {
    flight_submit(flight);
    finish(flight);
}

/* Submits, and waits until the driver has all copies. */
static void submit_and_hold(flight *flight) {
    SIM(sim_reset());
    SIM(sim_hold());
    flight_submit(flight);
    await_calls("cuMemcpyAsync", flight_info(flight).num_moves);
}

TEST(a_transfer_in_flight_is_in_progress_and_waits_time_out) {
    OPENED(copy_flight, flight, PLACE_DEVICE);
    submit_and_hold(&flight);
    flight_expect_in_progress(&flight);
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait(flight.transfer, 0, ERR));
    kvmem_completion completion;
    GET(size_t, count, kvmem_queue_wait, flight.queue, 0, &completion, 1);
    CHECK_EQ(count, 0);
    SIM(sim_go());
    EXPECT_OK(kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
    finish(&flight);
    run(&flight);
}

static void expect_no_completion(const flight *flight) {
    kvmem_completion completion;
    GET(size_t, count, kvmem_queue_wait, flight->queue, 0, &completion, 1);
    CHECK_EQ(count, 0);
}

static void expect_timeout(flight *flight) {
    flight_expect_end(flight, KVMEM_STATUS_TIMED_OUT, "by CUDA copy was not complete after 1000 ms");
    flight_expect_completion(flight, KVMEM_STATUS_TIMED_OUT);
    EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "may still be in use",
                   kvmem_transfer_submit(flight->transfer, NULL, ERR));
    expect_no_completion(flight);
    SIM(sim_go());
    expect_release(flight->queue, FLIGHT_USER_DATA, KVMEM_STATUS_OK); /* without a call for the transfer */
    /* The next run has a deadline, too. */
    EXPECT_OK(kvmem_transfer_submit(flight->transfer, NULL, ERR));
    const kvmem_completion end = next_completion(flight->queue);
    CHECK(end.status == KVMEM_STATUS_OK || end.status == KVMEM_STATUS_TIMED_OUT);
    if (!end.released) expect_release(flight->queue, FLIGHT_USER_DATA, KVMEM_STATUS_OK);
    flight_run_in_time(flight);
}

/* The driver's copies continue, and use the memory until they end. */
TEST(a_run_fails_at_its_deadline) {
    OPENED(copy_flight, flight, PLACE_DEVICE);
    flight_create(&flight, it.transfer.method = KVMEM_METHOD_CUDA_COPY, it.run.run_timeout_ns = SECONDS(1),
                  it.transfer.flags = KVMEM_TRANSFER_REPORT_RELEASE);
    submit_and_hold(&flight);
    expect_timeout(&flight);
}

TEST(a_run_on_a_stream_fails_at_its_deadline) {
    OPENED(stream, stream, 0);
    OPENED(copy_flight, flight, PLACE_DEVICE);
    flight_create(&flight, it.transfer.method = KVMEM_METHOD_CUDA_COPY, it.run.run_timeout_ns = SECONDS(1),
                  it.transfer.flags = KVMEM_TRANSFER_REPORT_RELEASE);
    SIM(sim_hold());
    flight_submit_on(&flight, stream.handle);
    expect_timeout(&flight);
}

/* It waits for resources of another run. */
TEST(a_run_that_has_not_begun_at_its_deadline_never_begins) {
    SIM(sim_reset());
    OPENED(flight, first, .from = PLACE_DEVICE, .to = PLACE_PINNED, .seed = 10);
    OPENED(flight, second, .from = PLACE_DEVICE, .to = PLACE_PINNED, .seed = 20, .has_queue = true);
    flight_create(&first, it.transfer.method = KVMEM_METHOD_CUDA_STAGED);
    flight_create(&second, it.transfer.method = KVMEM_METHOD_CUDA_STAGED,
                  it.run.run_timeout_ns = MILLISECONDS(20), it.transfer.flags = KVMEM_TRANSFER_REPORT_RELEASE);
    SIM(sim_hold());
    flight_submit(&first);
    await_calls("cuLaunchKernel", 1);
    const uint64_t launches = SIM(sim_calls("cuLaunchKernel"));
    flight_submit(&second);
    flight_expect_end(&second, KVMEM_STATUS_TIMED_OUT, "at least 0 of");
    CHECK_EQ(SIM(sim_calls("cuLaunchKernel")), launches);
    flight_expect_completion(&second, KVMEM_STATUS_TIMED_OUT);
    expect_release(second.queue, FLIGHT_USER_DATA, KVMEM_STATUS_OK); /* while the first run is in flight */
    SIM(sim_go());
    flight_finish(&first);
    kv_side_check(&second.destination.model);
}

TEST(a_graph_has_no_deadline) {
    OPENED(stream, stream, 0);
    OPENED(copy_flight, flight, PLACE_DEVICE);
    flight_create(&flight, it.transfer.method = KVMEM_METHOD_CUDA_COPY, it.run.run_timeout_ns = SECONDS(1));
    stream_begin_capture(&stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "graph can't have a deadline",
                   kvmem_transfer_submit_on_stream(flight.transfer, NULL, stream.handle, ERR));
    stream_drop_capture(&stream);
    run(&flight);
}

/* Resizing does not wait for the transfer. It fails and can be repeated. */
TEST(memory_in_flight_is_not_decommitted) {
    OPENED(copy_flight, flight, PLACE_ELASTIC);
    kvmem_layout *layout = flight.source.model.layout;
    const uint64_t committed = elastic_layout_memory(layout).num_committed;
    submit_and_hold(&flight);
    EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "a transfer in flight", kvmem_layout_resize(layout, 0, ERR));
    CHECK_EQ(elastic_layout_memory(layout).num_committed, committed);
    SIM(sim_go());
    EXPECT_OK(kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
    finish(&flight);
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
    kv_job options = WITH(kv_job_of(&first), it.transfer.method = KVMEM_METHOD_CUDA_COPY);
    OWN(kvmem_transfer, transfer, kv_prepare, layout, host.model.layout, &options);
    SIM(sim_reset());
    SIM(sim_hold());
    EXPECT_OK(kvmem_transfer_submit(transfer, NULL, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "the 2097152 bytes at offset 0",
                   kvmem_region_decommit(region, 0, EXTENT, ERR));
    EXPECT(KVMEM_STATUS_BUSY, kvmem_region_decommit(region, 0, 2 * EXTENT, ERR));
    EXPECT_OK(kvmem_region_decommit(region, EXTENT, EXTENT, ERR)); /* that of the other block */
    SIM(sim_go());
    EXPECT_OK(kvmem_transfer_wait(transfer, PATIENCE, ERR));
    EXPECT_OK(kvmem_region_decommit(region, 0, EXTENT, ERR));
}

/* The handles of a transfer in flight. */
enum { SOURCE, DESTINATION, TRANSFER, QUEUE, NUM_HANDLES };

static void destroy_handle(flight *flight, int handle) {
    switch (handle) {
    case TRANSFER: flight_destroy_transfer(flight); break;
    case QUEUE:
        DESTROYED(kvmem_queue, flight->queue);
        break;
    default:
        side_drop_handles(handle == SOURCE ? &flight->source : &flight->destination);
    }
}

/* A transfer in flight keeps its memory alive, and releases it at its end. */
static void destroy_in_order_while_in_flight(const int *order) {
    CLEANUP(await_live) const sim_counts before = sim_live_now();
    OPENED(copy_flight, flight, PLACE_DEVICE);
    submit_and_hold(&flight);
    const sim_counts in_flight = sim_live_now();
    for (int i = 0; i < NUM_HANDLES; i++) destroy_handle(&flight, order[i]);
    expect_still_alive(&in_flight);
    SIM(sim_go());
}

TEST(handles_can_be_destroyed_in_any_order_while_in_flight) {
    in_every_order(NUM_HANDLES, destroy_in_order_while_in_flight);
}

/* The driver reports a failed copy when the stream is queried. */
TEST(a_failed_copy_fails_only_its_transfer) {
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

TEST(after_a_failed_copy_earlier_copies_are_waited_for) {
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

/* Makes the next query of the run fail, and polls until four more queries were made. */
static void fail_query(const flight *flight, const char *function, CUresult result) {
    SIM(sim_fail(function, 1, result));
    const uint64_t queries = SIM(sim_calls(function));
    const uint64_t end = patience_end();
    while (SIM(sim_calls(function)) < queries + 4) {
        EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(flight->transfer, ERR));
        patience_wait(end, "queries of the run");
    }
    CHECK_STR(SIM(sim_last_failed()), function);
    EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(flight->transfer, ERR));
}

/* A query can fail because another thread captures a stream, or with an error of earlier work. The copies
   still run. */
TEST(a_query_that_fails_releases_nothing) {
    static const CUresult failures[] = {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_OUT_OF_MEMORY,
                                       CUDA_ERROR_LAUNCH_FAILED};
    for (size_t i = 0; i < NUM(failures); i++) {
        CLEANUP(await_live) const sim_counts before = sim_live_now();
        OPENED(copy_flight, flight, PLACE_DEVICE);
        submit_and_hold(&flight);
        const sim_counts in_flight = sim_live_now();
        fail_query(&flight, "cuStreamQuery", failures[i]);
        destroy_handle(&flight, SOURCE);
        expect_still_alive(&in_flight);
        SIM(sim_go());
        /* All bytes were copied, so only an error of failed work is reported. */
        if (failures[i] == CUDA_ERROR_LAUNCH_FAILED) {
            flight_expect_end(&flight, KVMEM_STATUS_CUDA, "CUDA_ERROR_LAUNCH_FAILED");
        } else {
            EXPECT_OK(kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
        }
    }
}

/* The same for the completion event of a run on the caller's stream. */
TEST(an_event_query_that_fails_releases_nothing) {
    OPENED(copy_flight, flight, PLACE_DEVICE);
    OPENED(stream, stream, 0);
    SIM(sim_hold());
    flight_submit_on(&flight, stream.handle);
    fail_query(&flight, "cuEventQuery", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    SIM(sim_go());
    EXPECT_OK(kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
    finish(&flight);
}

/* The work on the stream still runs, but its end cannot be queried. The run fails with the driver's error,
   and its memory is intentionally leaked. No other run may write to the same blocks. */
TEST(a_run_without_completion_event_fails_and_leaks_its_memory) {
    let_objects_remain();
    OPENED(stream, stream, 0);
    OPENED(copy_flight, flight, PLACE_ELASTIC);
    const kvmem_region_info elastic = elastic_layout_memory(flight.source.model.layout);
    const uint64_t committed = elastic.num_committed * elastic.memory_page_size;
    CHECK(committed > 0);
    GET(kvmem_cuda_device_info, before, kvmem_cuda_get_device_info, 0);
    SIM(sim_hold());
    SIM(sim_fail("cuEventRecord", SIM_EVERY_CALL, CUDA_ERROR_OUT_OF_MEMORY));
    flight_create(&flight, it.transfer.method = KVMEM_METHOD_CUDA_COPY,
                  it.transfer.flags = KVMEM_TRANSFER_REPORT_RELEASE);
    flight_submit_on(&flight, stream.handle);
    EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_MEMORY, "until the stream has passed it",
                   kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
    const kvmem_completion end = next_completion(flight.queue);
    CHECK_EQ(end.status, KVMEM_STATUS_OUT_OF_MEMORY);
    CHECK_EQ(end.released, 0);
    expect_release(flight.queue, FLIGHT_USER_DATA, KVMEM_STATUS_BUSY);
    EXPECT(KVMEM_STATUS_OUT_OF_MEMORY, kvmem_transfer_wait_on_stream(flight.transfer, 0, stream.handle, ERR));
    EXPECT(KVMEM_STATUS_BUSY, kvmem_layout_resize(flight.source.model.layout, 0, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "can't be detected", kvmem_transfer_submit(flight.transfer, NULL, ERR));
    OPENED(kv_side, other, &flight.source.model.config, NULL, 9);
    OWN(kvmem_transfer, same, kv_prepare, other.layout, flight.destination.model.layout, KV_JOB(&move));
    EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "can't be detected", kvmem_transfer_submit(same, NULL, ERR));
    DESTROYED(kvmem_transfer, same);
    const sim_counts in_flight = sim_live_now();
    for (int handle = 0; handle < NUM_HANDLES; handle++) destroy_handle(&flight, handle);
    const sim_counts left = sim_live_now();
    GET(kvmem_cuda_device_info, kept, kvmem_cuda_get_device_info, 0);
    CHECK(kept.kept_objects > before.kept_objects);
    CHECK_EQ(kept.kept_bytes - before.kept_bytes, committed);
    CHECK_EQ(left.mappings, in_flight.mappings);
    CHECK_EQ(left.registrations, in_flight.registrations);
    SIM(sim_reset()); /* executes the copies */
    stream_await(&stream);
}

/* More GPU copies in flight than kvmem has threads. */
#define MANY 40

static flight *submit_many(void) {
    flight *flights = test_allocate(MANY * sizeof(*flights));
    for (size_t i = 0; i < MANY; i++) copy_flight_open(&flights[i], PLACE_DEVICE);
    SIM(sim_hold());
    for (size_t i = 0; i < MANY; i++) flight_submit(&flights[i]);
    return flights;
}

static void finish_many(flight *flights) {
    SIM(sim_go());
    for (size_t i = 0; i < MANY; i++) {
        finish(&flights[i]);
        flight_close(&flights[i]);
    }
    free(flights);
}

TEST(a_host_copy_does_not_wait_for_gpus) {
    const kv_move host_move = KV_MOVE(3, {0, 1}, {2, 3});
    /* Blocks of 768 KiB: too large to be copied by the submitting thread. */
    const kvmem_layout_config config = WITH(kv_config(&kv_kinds[0]), it.page_size = 64, it.inner_dim = 1024);
    flight *flights = submit_many();
    OPENED(flight, host, .from = PLACE_SYSTEM, .to = PLACE_SYSTEM, .source = &config, .move = &host_move,
           .has_queue = true);
    flight_create(&host, it.transfer.method = 0);
    run(&host);
    finish_many(flights);
}

/* Each of the others waits for the kernel that computes its checksums, or for copies to the host, which the
   GPU does not begin. */
TEST(a_verified_host_copy_does_not_wait_for_gpus) {
    flight *flights = test_allocate(MANY * sizeof(*flights));
    for (size_t i = 0; i < MANY; i++) {
        copy_flight_open(&flights[i], PLACE_DEVICE);
        flight_create(&flights[i], it.transfer.method = KVMEM_METHOD_CUDA_COPY,
                      it.run.flags = KVMEM_SUBMIT_VERIFY);
    }
    SIM(sim_hold());
    const uint64_t copies = SIM(sim_calls("cuMemcpyAsync")) + MANY * flight_info(&flights[0]).num_moves;
    for (size_t i = 0; i < MANY; i++) flight_submit(&flights[i]);
    await_calls("cuMemcpyAsync", copies);
    /* The copies complete, and the ends are detected once the device is held again. */
    SIM(sim_hold_call("cuStreamQuery"));
    while (SIM(sim_held_calls()) == 0) sched_yield();
    SIM(sim_go());
    SIM(sim_hold());
    SIM(sim_go_calls());
    const kv_move host_move = KV_MOVE(3, {0, 1}, {2, 3});
    OPENED(flight, host, .from = PLACE_SYSTEM, .to = PLACE_SYSTEM, .move = &host_move, .has_queue = true);
    flight_create(&host, it.transfer.method = 0, it.run.flags = KVMEM_SUBMIT_VERIFY);
    await_calls("cuMemcpyAsync", copies + 16); /* of as many checks as threads that check */
    run(&host);
    finish_many(flights);
}

TEST(all_submitted_transfers_are_passed_to_the_driver) {
    flight *flights = submit_many();
    /* None waits for another, because the driver does not order them. */
    await_calls("cuMemcpyAsync", MANY * flight_info(&flights[0]).num_moves);
    finish_many(flights);
}
