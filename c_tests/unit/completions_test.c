// SPDX-License-Identifier: Apache-2.0
// What a queue reports besides the ends of runs: layers that have moved, and memory that is released after
// the end. The test makes no call for a transfer that waits for its release: threads of kvmem detect it.
#include "flight.h"
#include "harness.h"

#define LAYERS 4

static const kvmem_block_pair pairs[] = {{0, 1}, {63, 0}, {5, 63}, {6, 62}, {40, 7}};
static const kv_move move = {pairs, NUM(pairs), 0, 0, LAYERS};
/* Long enough for a thread to reach the gate before the deadline. */
#define TIME_TO_REACH_GATE SECONDS(1)

/* Replaces the transfer by one with these options, whose run is FLIGHT_USER_DATA. */
#define REPLACE(flight, ...)                                                                         \
    do {                                                                                             \
        kvmem_transfer_destroy((flight)->transfer);                                                  \
        (flight)->transfer = MADE(kvmem_transfer, kv_prepare, (flight)->source.layout,               \
                                  (flight)->destination.layout,                                      \
                                  KV_JOB(&move, it.transfer.queue = (flight)->queue,                 \
                                         it.run.user_data = FLIGHT_USER_DATA, __VA_ARGS__));         \
    } while (0)

/* A run that is late while a thread copies from a block of the source. */
static void run_late(flight *flight) {
    REPLACE(flight, it.transfer.flags = KVMEM_TRANSFER_REPORT_RELEASE,
            it.run.run_timeout_ns = TIME_TO_REACH_GATE);
    flight_hold(flight, 0, 0);
    const kvmem_completion end = next_completion(flight->queue);
    CHECK_EQ(end.kind, KVMEM_COMPLETION_RUN_ENDED);
    CHECK_EQ(end.status, KVMEM_STATUS_TIMED_OUT);
    CHECK_EQ(end.released, 0);
    flight_expect_none(flight);
}

static void run_in_memory(flight *flight) {
    const kvmem_submit_options step = {.struct_size = sizeof(step), .pairs = pairs, .num_pairs = NUM(pairs),
                                       .user_data = FLIGHT_USER_DATA, .run_timeout_ns = KVMEM_TIMEOUT_FOREVER};
    EXPECT_OK(kvmem_transfer_submit(flight->transfer, &step, ERR)); /* at once */
    flight_expect_moved(flight, &move, FLIGHT_USER_DATA);
}

TEST(a_late_run_reports_when_its_memory_is_released) {
    OPENED(flight, flight, &move, 0);
    for (int i = 0; i < 2; i++) {
        run_late(&flight);
        gate_open();
        expect_release(flight.queue, FLIGHT_USER_DATA, KVMEM_STATUS_OK);
        run_in_memory(&flight);
    }
    flight_expect_none(&flight);
}

TEST(another_transfer_can_write_to_the_blocks_once_they_are_released) {
    OPENED(flight, flight, &move, 0);
    kvmem_transfer *other = flight_transfer(&flight, &move, 0, 7);
    run_late(&flight);
    EXPECT(KVMEM_STATUS_BUSY, kvmem_transfer_submit(other, NULL, ERR));
    gate_open();
    expect_release(flight.queue, FLIGHT_USER_DATA, KVMEM_STATUS_OK);
    EXPECT_OK(kvmem_transfer_submit(other, NULL, ERR));
    flight_expect_moved(&flight, &move, 7);
    kvmem_transfer_destroy(other);
}

TEST(the_release_is_reported_although_the_transfer_is_destroyed) {
    OPENED(flight, flight, &move, 0);
    run_late(&flight);
    DESTROYED(kvmem_transfer, flight.transfer);
    flight_expect_none(&flight);
    gate_open();
    expect_release(flight.queue, FLIGHT_USER_DATA, KVMEM_STATUS_OK);
    flight_expect_none(&flight);
}

TEST(memory_is_released_although_the_queue_is_destroyed) {
    OPENED(flight, flight, &move, 0);
    run_late(&flight);
    DESTROYED(kvmem_queue, flight.queue);
    gate_open();
    CHECK_EQ(submit_when_free(flight.transfer), KVMEM_STATUS_OK);
    run_in_time(flight.transfer);
    kv_side_check_moved(&flight.destination, &flight.source, &move);
}

/* The end says that memory is released: there is nothing to wait for. */
TEST(runs_that_have_released_their_memory_report_only_their_end) {
    OPENED(flight, flight, &move, 0);
    REPLACE(&flight, it.transfer.flags = KVMEM_TRANSFER_REPORT_RELEASE);
    EXPECT_OK(kvmem_transfer_submit(flight.transfer, NULL, ERR));
    flight_expect_moved(&flight, &move, FLIGHT_USER_DATA);
    flight_hold(&flight, 63, 0);
    EXPECT_OK(kvmem_transfer_cancel(flight.transfer, ERR));
    flight_expect_none(&flight);
    gate_open();
    const kvmem_completion end = next_completion(flight.queue);
    CHECK_EQ(end.kind, KVMEM_COMPLETION_RUN_ENDED);
    CHECK_EQ(end.status, KVMEM_STATUS_CANCELLED);
    CHECK_EQ(end.released, 1);
    flight_expect_none(&flight);
}

TEST(a_release_is_not_reported_unless_that_is_asked_for) {
    OPENED(flight, flight, &move, 0);
    REPLACE(&flight, it.run.run_timeout_ns = TIME_TO_REACH_GATE);
    flight_hold(&flight, 0, 0);
    const kvmem_completion end = next_completion(flight.queue);
    CHECK_EQ(end.status, KVMEM_STATUS_TIMED_OUT);
    CHECK_EQ(end.released, 0);
    gate_open();
    CHECK_EQ(submit_when_free(flight.transfer), KVMEM_STATUS_OK);
    CHECK_EQ(next_completion(flight.queue).kind, KVMEM_COMPLETION_RUN_ENDED);
}

static void expect_layers(kvmem_queue *queue, uint64_t layers) {
    const kvmem_completion completion = next_completion(queue);
    CHECK_EQ(completion.kind, KVMEM_COMPLETION_LAYERS_MOVED);
    CHECK_EQ(completion.user_data, FLIGHT_USER_DATA);
    CHECK_EQ(completion.num_layers, layers);
    CHECK_EQ(completion.status, KVMEM_STATUS_OK);
    CHECK_EQ(completion.bytes, 0);
    CHECK_EQ(completion.released, 0);
}

/* Until there is nothing before the layer at the gate. */
static void await_layers(kvmem_queue *queue, uint64_t layers) {
    kvmem_completion completion;
    do {
        completion = next_completion(queue);
        CHECK_EQ(completion.kind, KVMEM_COMPLETION_LAYERS_MOVED);
    } while (completion.num_layers < layers);
    CHECK_EQ(completion.num_layers, layers);
}

static void check_first_layers(const flight *flight, uint64_t layers) {
    for (uint64_t layer = 0; layer < layers; layer++) {
        for (size_t i = 0; i < NUM(pairs); i++)
            CHECK_BYTES(kv_side_piece(&flight->destination, pairs[i].destination, layer, 0),
                        kv_side_piece(&flight->source, pairs[i].source, layer, 0), 32768);
    }
}

TEST(layers_are_reported_while_later_ones_move) {
    OPENED(flight, flight, &move, 0);
    REPLACE(&flight, it.transfer.flags = KVMEM_TRANSFER_BY_LAYER, it.transfer.layers_per_completion = 1);
    flight_hold(&flight, 5, 2);
    await_layers(flight.queue, 2);
    check_first_layers(&flight, 2);
    flight_expect_none(&flight);
    gate_open();
    await_layers(flight.queue, LAYERS);
    flight_expect_moved(&flight, &move, FLIGHT_USER_DATA);
    flight_expect_none(&flight);
}

TEST(a_completion_has_several_layers_if_that_is_asked_for) {
    OPENED(flight, flight, &move, 0);
    REPLACE(&flight, it.transfer.flags = KVMEM_TRANSFER_BY_LAYER, it.transfer.layers_per_completion = 3);
    flight_hold(&flight, 5, 3);
    expect_layers(flight.queue, 3);
    flight_expect_none(&flight);
    gate_open();
    expect_layers(flight.queue, LAYERS);
    flight_expect_moved(&flight, &move, FLIGHT_USER_DATA);
}

/* The queue holds no more than two completions of each run, and they are in order. */
TEST(layers_that_nobody_takes_are_one_completion_of_their_run) {
    OPENED(flight, flight, &move, 0);
    REPLACE(&flight, it.transfer.flags = KVMEM_TRANSFER_BY_LAYER, it.transfer.layers_per_completion = 1);
    for (int i = 0; i < 5; i++) RUN(flight.transfer);
    for (int i = 0; i < 5; i++) {
        expect_layers(flight.queue, LAYERS);
        flight_expect_moved(&flight, &move, FLIGHT_USER_DATA);
    }
    flight_expect_none(&flight);
}

TEST(layers_of_a_run_that_fails_are_reported_before_its_end) {
    OPENED(flight, flight, &move, 0);
    REPLACE(&flight, it.transfer.flags = KVMEM_TRANSFER_BY_LAYER, it.transfer.layers_per_completion = 2);
    flight_hold(&flight, 5, 0);
    EXPECT_OK(kvmem_transfer_cancel(flight.transfer, ERR));
    gate_open();
    kvmem_completion end = next_completion(flight.queue);
    CHECK_EQ(end.status, KVMEM_STATUS_CANCELLED);
    CHECK_EQ(end.num_layers, 1);

    REPLACE(&flight, it.transfer.flags = KVMEM_TRANSFER_BY_LAYER | KVMEM_TRANSFER_REPORT_RELEASE,
            it.transfer.layers_per_completion = 1, it.run.run_timeout_ns = TIME_TO_REACH_GATE);
    flight_hold(&flight, 5, 2);
    await_layers(flight.queue, 2);
    end = next_completion(flight.queue);
    CHECK_EQ(end.status, KVMEM_STATUS_TIMED_OUT);
    CHECK_EQ(end.num_layers, 2);
    CHECK_EQ(end.released, 0);
    DESTROYED(kvmem_transfer, flight.transfer);
    gate_open();
    expect_release(flight.queue, FLIGHT_USER_DATA, KVMEM_STATUS_OK);
    flight_expect_none(&flight);
}

/* Small copies have ended when the call returns; layers of files start one after the other. */
TEST(small_copies_and_files_report_layers) {
    static const uint32_t methods[] = {KVMEM_METHOD_PREAD, KVMEM_METHOD_URING};
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    const kv_move there = KV_MOVE(2, {6, 0}, {0, 5}), back = KV_MOVE(2, {0, 2}, {5, 3});
    OWN(kvmem_queue, queue, kvmem_queue_create);
    OPENED(kv_side, host, &config, NULL, 3);
    OPENED(kv_side, other, &config, NULL, 4);
    OWNED(kvmem_layout) disk = temporary_disk_layout(&config, NULL, KVMEM_DISK_BUFFERED);
    for (size_t i = 0; i < (can_test_io_uring() ? 2 : 1) * NUM(methods) + 1; i++) {
        const kvmem_layout *ends[] = {host.layout, i == 0 ? other.layout : disk};
        const uint32_t method = i == 0 ? KVMEM_METHOD_MEMCPY : methods[(i - 1) / 2];
        OWN(kvmem_transfer, transfer, kv_prepare, ends[i / 2 % 2], ends[1 - i / 2 % 2],
            KV_JOB(i % 2 ? &there : &back, it.transfer.flags = KVMEM_TRANSFER_BY_LAYER,
                   it.transfer.method = method, it.transfer.queue = queue, it.transfer.layers_per_completion = 1, it.run.user_data = i));
        EXPECT_OK(kvmem_transfer_submit(transfer, NULL, ERR));
        CHECK_EQ(end_after_layers(queue, 1, 2).user_data, i);
        if (i == 0) kv_side_check_moved(&other, &host, &back);
    }
}

TEST(completions_that_nothing_would_report_are_refused) {
    OPENED(flight, flight, &move, 0);
    const kvmem_layout *from = flight.source.layout, *to = flight.destination.layout;
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "layers_per_completion is set, and queue is NULL", kv_prepare, from,
           to, KV_JOB(&move, it.transfer.flags = KVMEM_TRANSFER_BY_LAYER, it.transfer.layers_per_completion = 1));
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "KVMEM_TRANSFER_REPORT_RELEASE is set, and queue is NULL", kv_prepare,
           from, to, KV_JOB(&move, it.transfer.flags = KVMEM_TRANSFER_REPORT_RELEASE));
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "set KVMEM_TRANSFER_BY_LAYER", kv_prepare, from, to,
           KV_JOB(&move, it.transfer.queue = flight.queue, it.transfer.layers_per_completion = 1));
}
