// SPDX-License-Identifier: Apache-2.0
// Transfers that report their layers, and transfers that are cancelled. A gate in the source stops the copy
// at a chosen layer.
#include "flight.h"
#include "harness.h"

#define PIECE 32768
#define LAYERS 4

static const kvmem_block_pair pairs[] = {{0, 1}, {63, 0}, {5, 63}, {6, 62}, {40, 7}};
static const kv_move move = {pairs, NUM(pairs), 0, 0, LAYERS};

static void expect_end(flight *flight, kvmem_status status) {
    flight_expect_end(flight, &move, FLIGHT_USER_DATA, status);
    EXPECT(status, kvmem_transfer_poll(flight->transfer, ERR));
}

static void expect_all_moved(flight *flight) {
    expect_end(flight, KVMEM_STATUS_OK);
    kv_side_check_moved(&flight->destination, &flight->source, &move);
}

static uint64_t moved_layers(const flight *flight) {
    return transfer_info(flight->transfer).layers_moved;
}

static void check_layer(const flight *flight, uint64_t layer) {
    for (size_t i = 0; i < NUM(pairs); i++) {
        for (uint64_t outer = 0; outer < 2; outer++)
            CHECK_BYTES(kv_side_piece(&flight->destination, pairs[i].destination, layer, outer),
                        kv_side_piece(&flight->source, pairs[i].source, layer, outer), PIECE);
    }
}

TEST(layers_are_reported_while_later_ones_move) {
    OPENED(flight, flight, &move, KVMEM_TRANSFER_BY_LAYER);
    flight_hold(&flight, 5, 2);
    EXPECT_OK(kvmem_transfer_wait_layers(flight.transfer, 2, PATIENCE, ERR));
    CHECK_EQ(moved_layers(&flight), 2);
    check_layer(&flight, 0);
    check_layer(&flight, 1);
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait_layers(flight.transfer, 3, 0, ERR));
    /* The waiting thread copies too: the last layer, which is not reported before the one at the gate. */
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait_layers(flight.transfer, 0, MILLISECONDS(20), ERR));
    CHECK_EQ(moved_layers(&flight), 2);
    EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(flight.transfer, ERR));
    gate_open();
    EXPECT_OK(kvmem_transfer_wait_layers(flight.transfer, 3, PATIENCE, ERR));
    EXPECT_OK(kvmem_transfer_wait_layers(flight.transfer, 0, PATIENCE, ERR));
    CHECK_EQ(moved_layers(&flight), LAYERS);
    expect_all_moved(&flight);
}

TEST(without_the_flag_all_layers_are_reported_at_the_end) {
    OPENED(flight, flight, &move, 0);
    flight_hold(&flight, 5, 2);
    CHECK_EQ(moved_layers(&flight), 0);
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait_layers(flight.transfer, 1, 0, ERR));
    gate_open();
    EXPECT_OK(kvmem_transfer_wait_layers(flight.transfer, 1, PATIENCE, ERR));
    CHECK_EQ(moved_layers(&flight), LAYERS);
    expect_all_moved(&flight);
}

TEST(invalid_waits_for_layers_fail) {
    OPENED(flight, flight, &move, KVMEM_TRANSFER_BY_LAYER);
    CHECK_EQ(moved_layers(&flight), 0);
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_transfer_wait_layers(flight.transfer, 1, 0, ERR));
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_transfer_wait_on_stream(flight.transfer, 1, NULL, ERR));
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_transfer_cancel(flight.transfer, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_RANGE, "4 layers",
                   kvmem_transfer_wait_layers(flight.transfer, LAYERS + 1, 0, ERR));
    EXPECT(KVMEM_STATUS_OUT_OF_RANGE,
           kvmem_transfer_wait_on_stream(flight.transfer, LAYERS + 1, NULL, ERR));
    flight_hold(&flight, 5, 1);
    EXPECT_OK(kvmem_transfer_wait_layers(flight.transfer, 1, PATIENCE, ERR));
    EXPECT_OK(kvmem_transfer_wait_on_stream(flight.transfer, 1, NULL, ERR)); /* nothing is left to wait for */
    EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "memcpy",
                   kvmem_transfer_wait_on_stream(flight.transfer, 2, NULL, ERR));
    gate_open();
    EXPECT_OK(kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
    EXPECT_OK(kvmem_transfer_wait_on_stream(flight.transfer, 0, NULL, ERR));
    expect_all_moved(&flight);
}

TEST(layers_that_have_not_started_are_cancelled) {
    OPENED(flight, flight, &move, KVMEM_TRANSFER_BY_LAYER);
    flight_hold(&flight, 5, 0);
    EXPECT_OK(kvmem_transfer_cancel(flight.transfer, ERR));
    EXPECT_OK(kvmem_transfer_cancel(flight.transfer, ERR));
    /* layers that have started continue */
    EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(flight.transfer, ERR));
    EXPECT(KVMEM_STATUS_BUSY, kvmem_transfer_submit(flight.transfer, NULL, ERR));
    gate_open();
    EXPECT(KVMEM_STATUS_CANCELLED, kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
    CHECK_EQ(moved_layers(&flight), 1);
    check_layer(&flight, 0);
    EXPECT_OK(kvmem_transfer_wait_layers(flight.transfer, 1, PATIENCE, ERR));
    EXPECT(KVMEM_STATUS_CANCELLED, kvmem_transfer_wait_layers(flight.transfer, 2, PATIENCE, ERR));
    expect_end(&flight, KVMEM_STATUS_CANCELLED);
    const kv_move first = {pairs, NUM(pairs), 0, 0, 1};
    kv_side_check_moved(&flight.destination, &flight.source, &first); /* no byte of the other layers */
    EXPECT_OK(kvmem_transfer_submit(flight.transfer, NULL, ERR));
    expect_all_moved(&flight);
}

TEST(chunks_that_have_not_started_are_cancelled) {
    OPENED(flight, flight, &move, 0);
    flight_hold(&flight, 63, 0); /* in the first of two chunks */
    EXPECT_OK(kvmem_transfer_cancel(flight.transfer, ERR));
    gate_open();
    EXPECT(KVMEM_STATUS_CANCELLED, kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
    CHECK_EQ(moved_layers(&flight), 0);
    expect_end(&flight, KVMEM_STATUS_CANCELLED);
    EXPECT_OK(kvmem_transfer_submit(flight.transfer, NULL, ERR));
    expect_all_moved(&flight);
}

TEST(a_late_cancellation_changes_nothing) {
    OPENED(flight, flight, &move, KVMEM_TRANSFER_BY_LAYER);
    flight_hold(&flight, 5, LAYERS - 1);
    EXPECT_OK(kvmem_transfer_cancel(flight.transfer, ERR));
    gate_open();
    EXPECT_OK(kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
    EXPECT_OK(kvmem_transfer_cancel(flight.transfer, ERR));
    expect_all_moved(&flight);
    EXPECT_OK(kvmem_transfer_submit(flight.transfer, NULL, ERR)); /* the next run is independent */
    expect_all_moved(&flight);
}

/* Layers small enough to be copied by the calling thread, and files, whose layers start one after the
   other. */
TEST(small_copies_and_files_report_layers) {
    static const uint32_t methods[] = {KVMEM_METHOD_PREAD, KVMEM_METHOD_URING};
    for (size_t kind = 0; kind < KV_NUM_KINDS * (can_test_io_uring() ? NUM(methods) : 1); kind++) {
        const kvmem_layout_config config = kv_config(&kv_kinds[kind % KV_NUM_KINDS]);
        static const kvmem_block_pair some[] = {{6, 0}, {0, 5}, {1, 6}};
        const kv_move part = {some, NUM(some), 1, 1, 2};
        const kv_move back = {(const kvmem_block_pair[]){{0, 2}, {5, 3}, {6, 4}}, 3, 1, 0, 2};
        OPENED(kv_side, host, &config, NULL, 3);
        OWNED(kvmem_layout) disk = temporary_disk_layout(&config, NULL, KVMEM_DISK_BUFFERED);
        const kv_move *moves[] = {&part, &back};
        for (size_t i = 0; i < NUM(moves); i++) {
            const kvmem_layout *ends[] = {host.layout, disk};
            OWN(kvmem_transfer, transfer, kv_prepare, ends[i], ends[1 - i],
                KV_JOB(moves[i], it.transfer.flags = KVMEM_TRANSFER_BY_LAYER,
                           it.transfer.method = methods[kind / KV_NUM_KINDS]));
            for (int again = 0; again < 3; again++) {
                EXPECT_OK(kvmem_transfer_submit(transfer, NULL, ERR));
                EXPECT_OK(kvmem_transfer_wait_layers(transfer, 1, PATIENCE, ERR));
                EXPECT_OK(kvmem_transfer_wait(transfer, PATIENCE, ERR));
                const uint64_t layers = transfer_info(transfer).layers_moved;
                CHECK_EQ(layers, 2);
            }
            CHECK_EQ(transfer_info(transfer).bytes, 3 * 2 * 2 * kv_piece_size(&config));
        }
        const kv_move there_and_back = {(const kvmem_block_pair[]){{6, 2}, {0, 3}, {1, 4}}, 3, 1, 0, 2};
        kv_side_check_moved(&host, &host, &there_and_back);
    }
}

/* Cancels at once, or when a layer has moved: requests already passed to the kernel complete, so both results
   are valid. */
static void submit_and_cancel(kvmem_transfer *transfer, bool by_layer) {
    EXPECT_OK(kvmem_transfer_submit(transfer, NULL, ERR));
    if (by_layer) EXPECT_OK(kvmem_transfer_wait_layers(transfer, 1, PATIENCE, ERR));
    EXPECT_OK(kvmem_transfer_cancel(transfer, ERR));
    const kvmem_status end = kvmem_transfer_wait(transfer, PATIENCE, ERR);
    const uint64_t layers = transfer_info(transfer).layers_moved;
    CHECK(layers >= by_layer);
    CHECK(end == KVMEM_STATUS_OK ? layers == 2 : end == KVMEM_STATUS_CANCELLED && layers < 2);
}

/* 32 MiB in pieces of 512 KiB: more than the kernel and threads have at a time. */
static void cancel_file_transfer(uint32_t method, bool to_file, bool by_layer) {
    kvmem_layout_config config = WITH(kv_aligned_config(&kv_kinds[1]), it.num_blocks = 32, it.num_layers = 2,
                                      it.inner_dim = 16384);
    kvmem_block_pair scattered[16];
    for (uint32_t i = 0; i < NUM(scattered); i++) scattered[i] = (kvmem_block_pair){2 * i, 31 - 2 * i};
    const kv_move all = {scattered, NUM(scattered), 0, 0, 2};
    file_pair pair;
    const size_t files = count_open_files();
    file_pair_open(&pair, &config, &config, NULL, 0);
    kvmem_transfer *transfer = file_pair_transfer(
        &pair, to_file, KV_JOB(&all, it.transfer.flags = by_layer ? KVMEM_TRANSFER_BY_LAYER : 0, it.transfer.method = method));
    for (int again = 0; again < 3; again++) submit_and_cancel(transfer, by_layer);
    RUN(transfer);
    file_pair_check_moved(&pair, to_file, &all);
    submit_and_cancel(transfer, by_layer); /* the same bytes once more */
    kvmem_transfer_destroy(transfer);
    file_pair_check(&pair);
    file_pair_close(&pair);
    while (count_open_files() > files) { /* until a thread or the ring has closed the last one */
        sched_yield();
    }
}

TEST(file_transfers_are_cancelled) {
    static const uint32_t methods[] = {KVMEM_METHOD_PREAD, KVMEM_METHOD_URING};
    for (size_t i = 0; i < 4 * (can_test_io_uring() ? NUM(methods) : 1); i++)
        cancel_file_transfer(methods[i / 4], i / 2 % 2, i % 2);
}

/* Thousands wait at the gate, and every third is cancelled: each is reported once with its result. */
TEST(thousands_in_flight_are_each_reported_once) {
    /* Under ThreadSanitizer no two transfers write the same block: they write the same bytes, but it would
       report them. */
    enum { MANY = UNDER_THREAD_SANITIZER ? 64 : 3000, EACH = 3 };
    OPENED(flight, flight, &move, 0);
    CLEANUP(test_free) kvmem_transfer **transfers = test_allocate(MANY * sizeof(*transfers));
    CLEANUP(test_free) bool *reported = test_allocate(MANY * sizeof(*reported));
    for (uint32_t i = 0; i < MANY; i++) {
        const kv_move one = KV_MOVE(LAYERS, {i % 64, i % 64});
        transfers[i] = flight_transfer(&flight, &one, i % 2 ? KVMEM_TRANSFER_BY_LAYER : 0, i);
        if (i < 64) kv_expect_moved(&flight.destination, &flight.source, &one);
    }
    gate_close(kv_side_piece(&flight.source, 0, 0, 0), kv_region_size(&flight.source.config));
    for (size_t i = 0; i < MANY; i++) EXPECT_OK(kvmem_transfer_submit(transfers[i], NULL, ERR));
    gate_await();
    for (size_t i = 0; i < MANY; i += EACH) EXPECT_OK(kvmem_transfer_cancel(transfers[i], ERR));
    gate_open();
    size_t cancelled = 0;
    for (size_t seen = 0; seen < MANY;) {
        kvmem_completion completions[64];
        GET(size_t, count, kvmem_queue_wait, flight.queue, PATIENCE, completions, NUM(completions));
        for (size_t i = 0; i < count; i++, seen++) {
            const uint64_t which = completions[i].user_data;
            CHECK(which < MANY && !reported[which]);
            reported[which] = true;
            const bool was_cancelled = completions[i].status == KVMEM_STATUS_CANCELLED;
            CHECK(was_cancelled ? which % EACH == 0 : completions[i].status == KVMEM_STATUS_OK);
            CHECK_EQ(completions[i].bytes, was_cancelled ? 0 : LAYERS * 2 * PIECE);
            cancelled += was_cancelled;
        }
    }
    CHECK(cancelled + 64 >= MANY / EACH); /* except those that threads had already started */
    /* If each transfer has its own block, every block was moved again by another one. */
    for (size_t i = 0; i < MANY && UNDER_THREAD_SANITIZER; i++) {
        EXPECT_OK(kvmem_transfer_submit(transfers[i], NULL, ERR));
        EXPECT_OK(kvmem_transfer_wait(transfers[i], PATIENCE, ERR));
    }
    kv_side_check(&flight.destination);
    for (size_t i = 0; i < MANY; i++) kvmem_transfer_destroy(transfers[i]);
}
