// SPDX-License-Identifier: Apache-2.0
// Transfers in flight. A gate in the source stops the copy until the test has checked its state.
#include "flight.h"
#include "harness.h"

static const kvmem_block_pair pairs[] = {{0, 1}, {63, 0}, {5, 63}, {6, 62}, {40, 7}};
static const kv_move move = {pairs, NUM(pairs), 0, 0, 4};

TEST(a_poll_before_the_first_submit_fails) {
    OPENED(flight, flight, &move, 0);
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_transfer_poll(flight.transfer, ERR));
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_transfer_wait(flight.transfer, 0, ERR));
    CHECK_EQ(transfer_info(flight.transfer).duration_ns, 0);
    CHECK_EQ(transfer_info(flight.transfer).bytes, NUM(pairs) * 4 * 2 * 32768);
    kv_side_check(&flight.destination); /* creating moves nothing */
}

TEST(polls_and_waits_report_a_run_in_flight) {
    OPENED(flight, flight, &move, 0);
    flight_hold(&flight, 0, 0);
    EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(flight.transfer, ERR));
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait(flight.transfer, 0, ERR));
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait(flight.transfer, MILLISECONDS(20), ERR));
    EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(flight.transfer, ERR));
    gate_open();
    EXPECT_OK(kvmem_transfer_wait(flight.transfer, KVMEM_TIMEOUT_FOREVER, ERR));
    EXPECT_OK(kvmem_transfer_poll(flight.transfer, ERR));
    /* the wait above was a part of it */
    CHECK(transfer_info(flight.transfer).duration_ns >= MILLISECONDS(20));
    flight_expect_moved(&flight, &move, FLIGHT_USER_DATA);
}

/* A waiting thread may copy, but starts nothing once its time is over. With the whole source behind the gate,
   it would be stopped there. */
TEST(a_wait_without_time_copies_nothing) {
    OPENED(flight, flight, &move, 0);
    gate_close(kv_side_piece(&flight.source, 0, 0, 0), kv_region_size(&flight.source.config));
    EXPECT_OK(kvmem_transfer_submit(flight.transfer, NULL, ERR));
    gate_await();
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait(flight.transfer, 0, ERR));
    gate_open();
    EXPECT_OK(kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
    flight_expect_moved(&flight, &move, FLIGHT_USER_DATA);
}

TEST(a_run_in_flight_cannot_be_submitted_again) {
    OPENED(flight, flight, &move, 0);
    flight_hold(&flight, 0, 0);
    EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "poll it or wait for it",
                   kvmem_transfer_submit(flight.transfer, NULL, ERR));
    gate_open();
    flight_expect_moved(&flight, &move, FLIGHT_USER_DATA);
    EXPECT_OK(kvmem_transfer_submit(flight.transfer, NULL, ERR));
    flight_expect_moved(&flight, &move, FLIGHT_USER_DATA);
}

TEST(pairs_may_be_changed_after_create) {
    OPENED(flight, flight, &move, 0);
    kvmem_transfer_destroy(flight.transfer);
    kvmem_block_pair mine[NUM(pairs)];
    memcpy(mine, pairs, sizeof(pairs));
    const kv_move my_move = {mine, NUM(mine), 0, 0, 4};
    EXPECT_OK(kv_prepare(flight.source.layout, flight.destination.layout,
                                    REF(WITH(kv_job_of(&my_move), it.transfer.queue = flight.queue,
                                             it.run.user_data = 42)), &flight.transfer, ERR));
    memset(mine, 0xFF, sizeof(mine));
    EXPECT_OK(kvmem_transfer_submit(flight.transfer, NULL, ERR));
    flight_expect_moved(&flight, &move, FLIGHT_USER_DATA);
}

TEST(a_transfer_destroyed_in_flight_completes) {
    OPENED(flight, flight, &move, 0);
    flight_hold(&flight, 0, 0);
    DESTROYED(kvmem_transfer, flight.transfer);
    gate_open();
    flight_expect_moved(&flight, &move, FLIGHT_USER_DATA);
}

/* The memory of one side, adopted again with a release callback, and a layout over it. */
static kvmem_layout *layout_with_release(kv_side *side) {
    OWNED(kvmem_region) region = region_adopt_noting_release(side->memory + side->starts[0],
                                                             kv_region_size(&side->config));
    return regions_lay_out(&side->config, &region, 1, NULL);
}

/* Handles 0, 1, 2 and 3 of the test below. */
enum { SOURCE, DESTINATION, TRANSFER, QUEUE, NUM_HANDLES };

static void destroy_handle(int handle, kvmem_layout **layouts, kvmem_transfer *transfer, kvmem_queue *queue) {
    if (handle == TRANSFER) kvmem_transfer_destroy(transfer);
    else if (handle == QUEUE) kvmem_queue_destroy(queue);
    else kvmem_layout_destroy(layouts[handle]);
}

static void destroy_in_order_while_in_flight(const int *order) {
    KV_SIDES(source, destination, kv_large_config(&kv_kinds[0]), kv_large_config(&kv_kinds[0]));
    kvmem_layout *layouts[] = {layout_with_release(&source), layout_with_release(&destination)};
    GET(kvmem_queue *, queue, kvmem_queue_create);
    kv_job options = WITH(kv_job_of(&move), it.transfer.queue = queue);
    GET(kvmem_transfer *, transfer, kv_prepare, layouts[SOURCE], layouts[DESTINATION], &options);
    const int before = releases_count();
    gate_close(kv_side_piece(&source, 0, 0, 0), 4096);
    EXPECT_OK(kvmem_transfer_submit(transfer, NULL, ERR));
    gate_await();
    for (int i = 0; i < NUM_HANDLES; i++) destroy_handle(order[i], layouts, transfer, queue);
    CHECK_EQ(releases_count(), before); /* a transfer in flight keeps its memory */
    gate_open();
    await_releases(before + 2);
    kv_side_check_moved(&destination, &source, &move);
}

TEST(handles_may_be_destroyed_in_any_order_during_a_run) {
    in_every_order(NUM_HANDLES, destroy_in_order_while_in_flight);
}

TEST(nothing_leaks) {
    KV_SIDES(source, destination, kv_config(&kv_kinds[0]), kv_config(&kv_kinds[0]));
    const kv_move small = KV_MOVE(3, {1, 2});
    kv_run(source.layout, destination.layout, &small);
    KEEPS_FILES;
    for (int i = 0; i < 100; i++) kv_run(source.layout, destination.layout, &small);
}
