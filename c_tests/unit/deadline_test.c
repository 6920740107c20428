// SPDX-License-Identifier: Apache-2.0
// Runs with a deadline. Late runs end at the deadline, and their memory stays in use until no thread accesses
// it; others end as without a deadline. If a deadline and an end coincide, either may come first, but the run
// has only one result.
#include "flight.h"
#include "harness.h"

#include <pthread.h>
#include <stdatomic.h>

static const kvmem_block_pair pairs[] = {{0, 1}, {63, 0}, {5, 63}, {6, 62}, {40, 7}};
static const kv_move move = {pairs, NUM(pairs), 0, 0, 4};
/* Long enough for a thread to reach the gate before the deadline. */
#define TIME_TO_REACH_GATE SECONDS(1)
#define BYTES (NUM(pairs) * 4 * 2 * 32768)

/* Replaces the transfer by one with this deadline. */
static void limit(flight *flight, uint64_t flags, uint64_t timeout_ns) {
    kvmem_transfer_destroy(flight->transfer);
    flight->transfer = MADE(kvmem_transfer, kv_prepare, flight->source.layout,
                            flight->destination.layout,
                            KV_JOB(&move, KV_SET_FLAGS(flags), it.transfer.queue = flight->queue,
                                       it.run.user_data = FLIGHT_USER_DATA, it.run.run_timeout_ns = timeout_ns));
}

/* The options of a run with the same blocks. */
static kvmem_submit_options step(uint64_t timeout_ns) {
    return (kvmem_submit_options){.struct_size = sizeof(kvmem_submit_options), .pairs = pairs,
                                  .num_pairs = NUM(pairs), .user_data = FLIGHT_USER_DATA,
                                  .run_timeout_ns = timeout_ns};
}

static kvmem_status submit_when_limited(kvmem_transfer *transfer, uint64_t timeout_ns) {
    const kvmem_submit_options options = step(timeout_ns);
    kvmem_status status = KVMEM_STATUS_BUSY;
    while (status == KVMEM_STATUS_BUSY) { /* only the deadline of the process limits this */
        sched_yield();
        status = kvmem_transfer_submit(transfer, &options, ERR);
    }
    return status;
}

static void run_without_limit(flight *flight) {
    CHECK_EQ(submit_when_limited(flight->transfer, KVMEM_TIMEOUT_FOREVER), KVMEM_STATUS_OK);
    EXPECT_OK(kvmem_transfer_wait(flight->transfer, PATIENCE, ERR));
    flight_expect_moved(flight, &move, FLIGHT_USER_DATA);
}

/* The number before `of` in the message: bytes that have moved. */
static uint64_t moved_at_least(void) {
    const char *text = strstr(test_last_message(), "at least ");
    CHECK(text != NULL);
    return strtoull(text + strlen("at least "), NULL, 10);
}

/* Waits for the queue: a thread that waits for the transfer may copy, and would stop at the gate. */
static void expect_late(flight *flight, const char *part) {
    flight_expect_end(flight, &move, FLIGHT_USER_DATA, KVMEM_STATUS_TIMED_OUT);
    EXPECT_MESSAGE(KVMEM_STATUS_TIMED_OUT, "timeout_ns", kvmem_transfer_poll(flight->transfer, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_TIMED_OUT, part,
                   kvmem_transfer_wait(flight->transfer, KVMEM_TIMEOUT_FOREVER, ERR));
    CHECK_HAS(test_last_message(), TEXT("of %d bytes", (int)BYTES));
}

TEST(a_late_run_ends_at_its_deadline_and_its_memory_stays_in_use) {
    OPENED(flight, flight, &move, 0);
    limit(&flight, 0, TIME_TO_REACH_GATE);
    flight_hold(&flight, 0, 0);
    expect_late(&flight, "by memcpy was not complete after 1000 ms");
    CHECK(moved_at_least() < BYTES);
    EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "its memory may still be in use",
                   kvmem_transfer_submit(flight.transfer, NULL, ERR));
    EXPECT_OK(kvmem_transfer_cancel(flight.transfer, ERR)); /* it has ended */
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_poll(flight.transfer, ERR));
    gate_open();
    run_without_limit(&flight);
    flight_expect_none(&flight); /* the stopped run reports no second end */
}

/* A caller who has given seconds reads what kvmem has understood. */
TEST(a_limit_in_the_wrong_unit_is_reported_in_nanoseconds) {
    OPENED(flight, flight, &move, 0);
    gate_close(kv_side_piece(&flight.source, 0, 0, 0), kv_region_size(&flight.source.config));
    EXPECT_OK(kvmem_transfer_submit(flight.transfer, REF(step(30)), ERR));
    expect_late(&flight, "was not complete after 30 ns");
    gate_open();
    run_without_limit(&flight); /* waits until the late run no longer reads the memory, which is freed next */
}

TEST(the_message_counts_layers_that_have_moved) {
    OPENED(flight, flight, &move, KVMEM_TRANSFER_BY_LAYER);
    limit(&flight, KVMEM_TRANSFER_BY_LAYER, TIME_TO_REACH_GATE);
    flight_hold(&flight, 40, 3);
    EXPECT_OK(kvmem_transfer_wait_layers(flight.transfer, 1, PATIENCE, ERR));
    expect_late(&flight, "by memcpy was not complete after 1000 ms");
    CHECK(moved_at_least() >= BYTES / 4);
    CHECK(moved_at_least() < BYTES);
    gate_open();
    run_without_limit(&flight);
}

TEST(each_run_has_a_limit_of_its_own) {
    OPENED(flight, flight, &move, 0);
    CHECK_EQ(submit_when_limited(flight.transfer, KVMEM_TIMEOUT_FOREVER), KVMEM_STATUS_OK);
    EXPECT_OK(kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
    flight_expect_moved(&flight, &move, FLIGHT_USER_DATA);
    static const struct {
        uint64_t before, of_run;
        const char *part;
    } limits[] = {{0, MILLISECONDS(2), "after 2 ms"},
                  {SECONDS(3000), MILLISECONDS(3), "after 3 ms"},
                  {KVMEM_TIMEOUT_FOREVER, 500000, "after 0.5 ms"}};
    for (size_t i = 0; i < NUM(limits); i++) {
        limit(&flight, 0, limits[i].before);
        gate_close(kv_side_piece(&flight.source, 0, 0, 0), kv_region_size(&flight.source.config));
        const kvmem_submit_options options = step(limits[i].of_run);
        EXPECT_OK(kvmem_transfer_submit(flight.transfer, &options, ERR));
        expect_late(&flight, limits[i].part);
        gate_open();
        run_without_limit(&flight);
    }
    /* A later run with the same blocks has the limit of the last one: none here. */
    limit(&flight, 0, MILLISECONDS(1));
    run_without_limit(&flight);
    flight_hold(&flight, 0, 0);
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait(flight.transfer, MILLISECONDS(20), ERR));
    EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(flight.transfer, ERR));
    gate_open();
    flight_expect_moved(&flight, &move, FLIGHT_USER_DATA);
}

/* The handles are destroyed at the deadline, and the memory is released once nothing accesses it. */
TEST(memory_is_released_after_the_last_access) {
    OPENED(flight, flight, &move, 0);
    const int releases = releases_count();
    const kvmem_layout_config *config = &flight.source.config;
    unsigned char *memory = flight.source.memory + flight.source.starts[0];
    kvmem_region *region = region_adopt_noting_release(memory, kv_region_size(config));
    kvmem_layout *layout = regions_lay_out(config, &region, 1, NULL);
    kvmem_transfer *transfer =
        MADE(kvmem_transfer, kv_prepare, layout, flight.destination.layout,
             KV_JOB(&move, it.run.run_timeout_ns = TIME_TO_REACH_GATE));
    gate_close(kv_side_piece(&flight.source, 0, 0, 0), 4096);
    EXPECT_OK(kvmem_transfer_submit(transfer, NULL, ERR));
    gate_await();
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait(transfer, PATIENCE, ERR));
    kvmem_transfer_destroy(transfer);
    kvmem_layout_destroy(layout);
    kvmem_region_destroy(region);
    CHECK_EQ(releases_count(), releases);
    gate_open();
    await_releases(releases + 1);
}

TEST(runs_within_the_limit_end_as_without_one) {
    OPENED(flight, flight, &move, 0);
    limit(&flight, KV_VERIFY, SECONDS(3000));
    for (int i = 0; i < 200; i++) {
        RUN(flight.transfer);
        flight_expect_moved(&flight, &move, FLIGHT_USER_DATA);
    }
    flight_expect_none(&flight);
}

typedef struct canceller {
    kvmem_transfer *transfer;
    atomic_bool stops;
} canceller;

static void *cancel_again_and_again(void *argument) {
    canceller *mine = argument;
    while (!mine->stops) {
        kvmem_transfer_cancel(mine->transfer, NULL); /* fails before the first run */
        sched_yield();
    }
    return NULL;
}

/* Each run has one result, whichever comes first, and every function reports the same. */
static void race(const kvmem_layout *source, const kvmem_layout *destination, uint32_t method, uint64_t flags,
                 int rounds) {
    OWNED(kvmem_queue) queue = NULL;
    EXPECT_OK(kvmem_queue_create(&queue, ERR));
    OWN(kvmem_transfer, transfer, kv_prepare, source, destination,
        KV_JOB(&move, it.transfer.method = method, KV_SET_FLAGS(flags | KVMEM_TRANSFER_REPORT_RELEASE),
               it.transfer.queue = queue));
    canceller canceller = {.transfer = transfer};
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, cancel_again_and_again, &canceller), 0);
    uint64_t last_duration = MILLISECONDS(1);
    for (int i = 0; i < rounds; i++) {
        /* From before the run starts until after its end. */
        const uint64_t timeout = 1 + last_duration * (uint64_t)(i % 8) / 4;
        EXPECT_OK(kvmem_transfer_submit(transfer, REF(step(timeout)), ERR));
        const kvmem_completion completion = next_completion(queue);
        CHECK_EQ(completion.kind, KVMEM_COMPLETION_RUN_ENDED);
        CHECK(completion.released || completion.status == KVMEM_STATUS_TIMED_OUT);
        if (!completion.released) expect_release(queue, FLIGHT_USER_DATA, KVMEM_STATUS_OK);
        const kvmem_status status = kvmem_transfer_poll(transfer, ERR);
        CHECK_EQ(completion.status, status);
        CHECK(status == KVMEM_STATUS_OK || status == KVMEM_STATUS_TIMED_OUT ||
              status == KVMEM_STATUS_CANCELLED);
        CHECK_EQ(completion.bytes, status == KVMEM_STATUS_OK ? BYTES : 0);
        if (status == KVMEM_STATUS_OK) last_duration = transfer_info(transfer).duration_ns;
    }
    canceller.stops = true;
    CHECK_EQ(pthread_join(thread, NULL), 0);
    EXPECT_OK(kvmem_transfer_submit(transfer, REF(step(SECONDS(3000))), ERR));
    EXPECT_OK(kvmem_transfer_wait(transfer, PATIENCE, ERR));
    CHECK_EQ(next_completion(queue).status, KVMEM_STATUS_OK);
    kvmem_completion completion;
    GET(size_t, count, kvmem_queue_wait, queue, 0, &completion, 1);
    CHECK_EQ(count, 0);
}

TEST(a_deadline_an_end_and_a_cancellation_race_in_memory) {
    static const uint64_t flags[] = {0, KVMEM_TRANSFER_BY_LAYER, KV_VERIFY, KV_CHECKSUM};
    OPENED(flight, flight, &move, 0);
    for (size_t i = 0; i < NUM(flags); i++) {
        race(flight.source.layout, flight.destination.layout, KVMEM_METHOD_MEMCPY, flags[i], 1000);
        kv_side_check_moved(&flight.destination, &flight.source, &move);
    }
}

static void race_to_file(uint32_t method) {
    OPENED(flight, flight, &move, 0);
    kvmem_region *region = region_create_temporary_file(kv_region_size(&flight.source.config));
    OWNED(kvmem_layout) file = regions_lay_out(&flight.source.config, &region, 1, NULL);
    kvmem_region_destroy(region);
    race(flight.source.layout, file, method, 0, 200);
    const kv_move back = {.pairs = (const kvmem_block_pair[]){{1, 1}, {0, 0}, {63, 63}, {62, 62}, {7, 7}},
                          .num_pairs = NUM(pairs), .num_layers = 4};
    kv_run(file, flight.destination.layout, &back);
    kv_side_check_moved(&flight.destination, &flight.source, &move);
}

TEST_CALL(in_files_by_threads, race_to_file(KVMEM_METHOD_PREAD))

TEST(in_files_by_io_uring) {
    if (can_test_io_uring()) race_to_file(KVMEM_METHOD_URING);
}
