// SPDX-License-Identifier: Apache-2.0
// Transfers between host layouts that get new pairs with each submission. A gate in the source stops the copy
// until the test has checked its state.
#include "flight.h"
#include "harness.h"

#define PIECE 32768
#define LAYERS 4
#define BLOCK (LAYERS * 2 * PIECE)

static const kvmem_block_pair first[] = {{0, 1}, {63, 0}, {5, 63}, {6, 62}, {40, 7}};
static const kvmem_block_pair fewer[] = {{9, 3}};
static const kvmem_block_pair more[] = {{20, 30}, {21, 31}, {22, 32}, {2, 33}, {50, 9}, {3, 4}, {4, 60},
                                        {60, 2}};
/* A destination twice, and blocks that do not exist. */
static const kvmem_block_pair twice[] = {{1, 8}, {2, 8}};
static const kvmem_block_pair outside[] = {{1, 8}, {64, 9}};

#define MOVE(pairs) ((kv_move){pairs, NUM(pairs), 0, 0, LAYERS})

static kvmem_submit_options step_of(const kv_move *move, uint64_t user_data) {
    return OPTIONS(kvmem_submit_options, it.pairs = move->pairs, it.num_pairs = move->num_pairs,
                   it.user_data = user_data);
}

static void run_step(flight *steps, const kv_move *move, uint64_t user_data) {
    RUN_WITH(steps->transfer, REF(step_of(move, user_data)));
    flight_expect_moved(steps, move, user_data);
}

TEST(each_submission_moves_its_own_pairs) {
    const kv_move moves[] = {MOVE(more), MOVE(fewer), MOVE(first), MOVE(more)};
    OPENED(flight, steps, &MOVE(first), 0);
    for (size_t i = 0; i < NUM(moves); i++) {
        run_step(&steps, &moves[i], 100 + i);
        GET(kvmem_transfer_info, info, kvmem_transfer_get_info, steps.transfer);
        CHECK_EQ(info.bytes, moves[i].num_pairs * BLOCK);
        CHECK_EQ(info.num_pieces, moves[i].num_pairs * LAYERS * 2);
        CHECK(info.num_moves > 0 && info.num_moves <= info.num_pieces);
    }
}

TEST(a_small_step_is_complete_when_the_call_returns) {
    static const kvmem_block_pair small[][2] = {{{0, 1}, {3, 2}}, {{6, 0}, {5, 3}}, {{2, 6}, {1, 5}}};
    const kv_move start = KV_MOVE(3, {4, 4});
    KV_SIDES(source, destination, kv_config(&kv_kinds[1]), kv_config(&kv_kinds[0]));
    OWNED(kvmem_transfer) transfer = kv_transfer(source.layout, destination.layout, &start);
    for (size_t i = 0; i < NUM(small); i++) {
        const kv_move move = {small[i], 2, 0, 0, 3};
        EXPECT_OK(kvmem_transfer_submit(transfer, REF(step_of(&move, i)), ERR));
        EXPECT_OK(kvmem_transfer_poll(transfer, ERR));
        kv_side_check_moved(&destination, &source, &move);
    }
}

TEST(a_plain_submission_repeats_the_last_pairs) {
    const kv_move move = MOVE(more);
    OPENED(flight, steps, &MOVE(first), 0);
    run_step(&steps, &move, 7);
    RUN(steps.transfer);
    flight_expect_moved(&steps, &move, 7);
}

TEST(pairs_may_be_changed_after_the_call) {
    OPENED(flight, steps, &MOVE(first), 0);
    kvmem_block_pair mine[NUM(more)];
    memcpy(mine, more, sizeof(more));
    const kv_move my_move = {mine, NUM(mine), 0, 0, LAYERS};
    gate_close(kv_side_piece(&steps.source, 20, 0, 0), 4096);
    EXPECT_OK(kvmem_transfer_submit(steps.transfer, REF(step_of(&my_move, 1)), ERR));
    gate_await();
    memset(mine, 0xFF, sizeof(mine));
    gate_open();
    EXPECT_OK(kvmem_transfer_wait(steps.transfer, PATIENCE, ERR));
    const kv_move move = MOVE(more);
    flight_expect_moved(&steps, &move, 1);
}

/* Invalid pairs start nothing, and the transfer keeps the pairs that it has. */
TEST(invalid_pairs_change_nothing) {
    const struct {
        kv_move move;
        kvmem_status status;
        const char *text;
    } bad[] = {
        {MOVE(twice), KVMEM_STATUS_INVALID_ARGUMENT, "destination of pairs[0] and pairs[1] is 8; name"},
        {MOVE(outside), KVMEM_STATUS_OUT_OF_RANGE, "pairs[1].source is 64"},
        {{first, 0, 0, 0, LAYERS}, KVMEM_STATUS_INVALID_ARGUMENT, "num_pairs is 0"},
        {{NULL, 3, 0, 0, LAYERS}, KVMEM_STATUS_INVALID_ARGUMENT, "pairs is NULL"},
    };
    const kv_move before = MOVE(more);
    OPENED(flight, steps, &MOVE(first), 0);
    for (size_t i = 0; i < NUM(bad); i++) {
        const kvmem_submit_options step = step_of(&bad[i].move, 99);
        EXPECT_MESSAGE(bad[i].status, bad[i].text, kvmem_transfer_submit(steps.transfer, &step, ERR));
    }
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_transfer_poll(steps.transfer, ERR)); /* nothing was started */
    run_step(&steps, &before, 5);
    for (size_t i = 0; i < NUM(bad); i++) {
        const kvmem_submit_options step = step_of(&bad[i].move, 99);
        EXPECT(bad[i].status, kvmem_transfer_submit(steps.transfer, &step, ERR));
        EXPECT_OK(kvmem_transfer_poll(steps.transfer, ERR)); /* of the previous run */
        CHECK_EQ(transfer_info(steps.transfer).bytes, before.num_pairs * BLOCK);
    }
    flight_expect_none(&steps);
    RUN(steps.transfer);
    flight_expect_moved(&steps, &before, 5);
}

TEST(a_notification_without_a_peer_fails_and_changes_nothing) {
    const kv_move move = MOVE(fewer);
    OPENED(flight, steps, &MOVE(first), 0);
    kvmem_submit_options step = WITH(step_of(&move, 1), it.notification = "moved", it.notification_size = 5);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "neither layout is remote",
                   kvmem_transfer_submit(steps.transfer, &step, ERR));
    run_step(&steps, &move, 2);
}

TEST(new_pairs_during_a_run_fail_and_do_not_change_the_run) {
    const kv_move move = MOVE(more), other = MOVE(fewer);
    OPENED(flight, steps, &MOVE(first), 0);
    const kvmem_submit_options step = step_of(&move, 1), refused = step_of(&other, 2);
    gate_close(kv_side_piece(&steps.source, 20, 0, 0), 4096);
    EXPECT_OK(kvmem_transfer_submit(steps.transfer, &step, ERR));
    gate_await();
    EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "poll it or wait for it",
                   kvmem_transfer_submit(steps.transfer, &refused, ERR));
    EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(steps.transfer, ERR));
    gate_open();
    EXPECT_OK(kvmem_transfer_wait(steps.transfer, PATIENCE, ERR));
    flight_expect_moved(&steps, &move, 1);
    run_step(&steps, &other, 2);
}

TEST(a_cancelled_step_is_followed_by_others) {
    const kv_move move = MOVE(more), other = MOVE(first);
    OPENED(flight, steps, &MOVE(first), 0);
    gate_close(kv_side_piece(&steps.source, 20, 0, 0), 4096);
    EXPECT_OK(kvmem_transfer_submit(steps.transfer, REF(step_of(&move, 1)), ERR));
    gate_await();
    EXPECT_OK(kvmem_transfer_cancel(steps.transfer, ERR));
    gate_open();
    EXPECT(KVMEM_STATUS_CANCELLED, kvmem_transfer_wait(steps.transfer, PATIENCE, ERR));
    flight_expect_end(&steps, &move, 1, KVMEM_STATUS_CANCELLED);
    /* The cancelled run may have written any part of these blocks, so all of them are moved again. */
    run_step(&steps, &move, 3);
    run_step(&steps, &other, 4);
}

TEST(a_step_by_layer_reports_its_layers) {
    const kv_move moves[] = {MOVE(fewer), MOVE(more)};
    OPENED(flight, steps, &MOVE(first), KVMEM_TRANSFER_BY_LAYER);
    for (size_t i = 0; i < NUM(moves); i++) {
        const kvmem_submit_options step = step_of(&moves[i], i);
        gate_close(kv_side_piece(&steps.source, moves[i].pairs[0].source, 2, 0), 4096);
        EXPECT_OK(kvmem_transfer_submit(steps.transfer, &step, ERR));
        gate_await();
        CHECK(transfer_info(steps.transfer).layers_moved <= 2);
        gate_open();
        EXPECT_OK(kvmem_transfer_wait_layers(steps.transfer, 0, PATIENCE, ERR));
        EXPECT_OK(kvmem_transfer_wait(steps.transfer, PATIENCE, ERR));
        flight_expect_moved(&steps, &moves[i], i);
    }
}

TEST(checksums_belong_to_the_step_that_computes_them) {
    const kv_move move = MOVE(first), other = MOVE(fewer);
    OPENED(flight, steps, &MOVE(first), 0);
    uint32_t ids[NUM(first)], sums[NUM(first)];
    for (size_t i = 0; i < NUM(first); i++) ids[i] = first[i].source;
    EXPECT_OK(kvmem_layout_checksum(steps.source.layout, ids, NUM(ids), KVMEM_TIMEOUT_FOREVER, sums, ERR));
    kvmem_submit_options step = WITH(step_of(&move, 1), it.checksums = sums);
    RUN_WITH(steps.transfer, &step);
    flight_expect_moved(&steps, &move, 1);
    sums[2]++;
    EXPECT_OK(kvmem_transfer_submit(steps.transfer, &step, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_CORRUPT, "pair 2", kvmem_transfer_wait(steps.transfer, PATIENCE, ERR));
    flight_expect_end(&steps, &move, 1, KVMEM_STATUS_CORRUPT);
    run_step(&steps, &other, 2); /* this run computes none */
}

TEST(new_pairs_are_verified_too) {
    const kv_move move = MOVE(more);
    const uint32_t sums[NUM(more)] = {0};
    OPENED(flight, steps, &MOVE(first), 0);
    const kvmem_submit_options verified = WITH(step_of(&move, 1), it.flags = KVMEM_SUBMIT_VERIFY);
    EXPECT_OK(kvmem_transfer_submit(steps.transfer, &verified, ERR));
    flight_expect_moved(&steps, &move, 1);
    const kvmem_submit_options both = WITH(step_of(&move, 2), it.checksums = sums, it.flags = KVMEM_SUBMIT_VERIFY);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "KVMEM_SUBMIT_VERIFY",
                   kvmem_transfer_submit(steps.transfer, &both, ERR));
    const kvmem_submit_options unknown = WITH(step_of(&move, 2), it.flags = 4);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "kvmem_submit_options",
                   kvmem_transfer_submit(steps.transfer, &unknown, ERR));
    run_step(&steps, &move, 3);
}

/* Within one layout. Each step checks which blocks are read and which are written. */
TEST(each_step_checks_that_no_block_is_read_and_written) {
    static const kvmem_block_pair apart[] = {{0, 1}, {2, 3}}, chained[] = {{0, 1},
                                                                           {1, 2}}, others[] = {{1, 0},
                                                                                                {3, 2}};
    OPENED(kv_side, side, REF(kv_large_config(&kv_kinds[2])), NULL, 3);
    const kv_move move = MOVE(apart), bad = MOVE(chained), back = MOVE(others);
    OWN(kvmem_transfer, transfer, kv_prepare, side.layout, side.layout, KV_JOB(&move));
    const kvmem_submit_options refused = step_of(&bad, 0), step = step_of(&back, 0);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "overlap",
                   kvmem_transfer_submit(transfer, &refused, ERR));
    RUN_WITH(transfer, &step);
    kv_side_check_moved(&side, &side, &back);
}

TEST(one_call_creates_and_submits) {
    const kv_move move = MOVE(more), bad = MOVE(outside);
    OPENED(flight, steps, &MOVE(first), 0);
    DESTROYED(kvmem_transfer, steps.transfer);
    kv_job options = WITH(kv_job_of(&move), it.transfer.queue = steps.queue,
                                          it.run.user_data = 6);
    EXPECT_OK(kvmem_transfer_start(steps.source.layout, steps.destination.layout, &options.transfer,
                                   &options.run, &steps.transfer, ERR));
    EXPECT_OK(kvmem_transfer_wait(steps.transfer, PATIENCE, ERR));
    flight_expect_moved(&steps, &move, 6);
    options = kv_job_of(&bad);
    options.transfer.queue = steps.queue;
    kvmem_transfer *none = steps.transfer;
    EXPECT(KVMEM_STATUS_OUT_OF_RANGE,
           kvmem_transfer_start(steps.source.layout, steps.destination.layout, &options.transfer,
                                &options.run,
                                &none, ERR));
    CHECK(none == NULL);
    flight_expect_none(&steps);
}

/* A transfer of whole blocks, which has none yet. */
static kvmem_transfer *without_blocks(const flight *steps) {
    return MADE(kvmem_transfer, kvmem_transfer_create, steps->source.layout, steps->destination.layout,
                REF(OPTIONS(kvmem_transfer_options, it.queue = steps->queue)));
}

/* Blocks that are prepared do not help: the calls need a run. */
static void expect_not_submitted(kvmem_transfer *transfer) {
    static const char text[] = "was not submitted";
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, text, kvmem_transfer_poll(transfer, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, text, kvmem_transfer_wait(transfer, PATIENCE, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, text, kvmem_transfer_wait_layers(transfer, 1, PATIENCE, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, text, kvmem_transfer_cancel(transfer, ERR));
}

static void expect_no_blocks(kvmem_transfer *transfer) {
    static const char text[] = "has no blocks yet";
    kvmem_transfer_info info;
    kvmem_blob *blob = NULL;
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, text, kvmem_transfer_submit(transfer, NULL, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, text, kvmem_transfer_get_info(transfer, &info, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, text, kvmem_transfer_explain(transfer, &blob, ERR));
    size_t count;
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, text,
                   kvmem_transfer_get_methods(transfer, NULL, 0, &count, ERR));
}

TEST(a_transfer_has_no_blocks_until_it_is_given_some) {
    const kv_move move = MOVE(more), bad = MOVE(outside);
    OPENED(flight, steps, &MOVE(first), 0);
    OWNED(kvmem_transfer) transfer = without_blocks(&steps);
    expect_no_blocks(transfer);
    expect_not_submitted(transfer);
    EXPECT(KVMEM_STATUS_OUT_OF_RANGE, kvmem_transfer_prepare(transfer, REF(step_of(&bad, 1)), ERR));
    EXPECT(KVMEM_STATUS_OUT_OF_RANGE, kvmem_transfer_submit(transfer, REF(step_of(&bad, 1)), ERR));
    expect_no_blocks(transfer);
    EXPECT_OK(kvmem_transfer_prepare(transfer, REF(step_of(&move, 1)), ERR));
    expect_not_submitted(transfer);
    flight_expect_none(&steps);
    RUN_WITH(transfer, REF(step_of(&move, 2)));
    flight_expect_moved(&steps, &move, 2);
}

TEST(prepared_blocks_are_moved_by_the_next_submission) {
    const kv_move moves[] = {MOVE(more), MOVE(fewer)}, bad = MOVE(twice);
    OPENED(flight, steps, &MOVE(first), 0);
    OWNED(kvmem_transfer) transfer = without_blocks(&steps);
    for (size_t i = 0; i < NUM(moves); i++) {
        kvmem_block_pair mine[NUM(more)];
        memcpy(mine, moves[i].pairs, moves[i].num_pairs * sizeof(mine[0]));
        const kv_move my_move = {mine, moves[i].num_pairs, 0, 0, LAYERS};
        EXPECT_OK(kvmem_transfer_prepare(transfer, REF(step_of(&my_move, i)), ERR));
        memset(mine, 0xFF, sizeof(mine)); /* they were copied */
        CHECK_EQ(transfer_info(transfer).bytes, moves[i].num_pairs * BLOCK);
        EXPECT(KVMEM_STATUS_INVALID_ARGUMENT, kvmem_transfer_prepare(transfer, REF(step_of(&bad, 9)), ERR));
        kv_side_check(&steps.destination); /* nothing has moved */
        flight_expect_none(&steps);
        RUN(transfer);
        flight_expect_moved(&steps, &moves[i], i);
    }
}

TEST(blocks_are_not_prepared_during_a_run) {
    const kv_move move = MOVE(more), other = MOVE(fewer);
    OPENED(flight, steps, &MOVE(first), 0);
    gate_close(kv_side_piece(&steps.source, 20, 0, 0), 4096);
    EXPECT_OK(kvmem_transfer_submit(steps.transfer, REF(step_of(&move, 1)), ERR));
    gate_await();
    EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "poll it or wait for it",
                   kvmem_transfer_prepare(steps.transfer, REF(step_of(&other, 2)), ERR));
    gate_open();
    EXPECT_OK(kvmem_transfer_wait(steps.transfer, PATIENCE, ERR));
    flight_expect_moved(&steps, &move, 1);
    EXPECT_OK(kvmem_transfer_prepare(steps.transfer, REF(step_of(&other, 2)), ERR));
    EXPECT_OK(kvmem_transfer_poll(steps.transfer, ERR)); /* of the run before */
    RUN(steps.transfer);
    flight_expect_moved(&steps, &other, 2);
}

#define THREADS 4
#define ROUNDS 60

/* Some blocks for a round of a thread. No two threads write the same block. */
static size_t pairs_of_round(kvmem_block_pair *pairs, uint32_t thread, uint32_t round) {
    const size_t count = 1 + (thread + round) % 8;
    for (uint32_t i = 0; i < count; i++)
        pairs[i] = (kvmem_block_pair){(7 * thread + 11 * round + 5 * i) % 64,
                                      16 * thread + (round + 2 * i) % 16};
    return count;
}

typedef struct worker {
    flight *steps;
    kvmem_transfer *transfer;
    uint32_t number;
    uint32_t started; /* number of its runs, if it shares the transfer */
} worker;

static void *work(void *argument) {
    const worker *worker = argument;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        kvmem_block_pair pairs[8];
        const kv_move move = {pairs, pairs_of_round(pairs, worker->number, round), 0, 0, LAYERS};
        const kvmem_submit_options step = step_of(&move, worker->number);
        CHECK_EQ(kvmem_transfer_submit(worker->transfer, &step, NULL), KVMEM_STATUS_OK);
        CHECK_EQ(kvmem_transfer_wait(worker->transfer, PATIENCE, NULL), KVMEM_STATUS_OK);
    }
    return NULL;
}

TEST(threads_each_with_a_transfer_do_not_disturb_each_other) {
    OPENED(flight, steps, &MOVE(first), 0);
    const kv_move initial = MOVE(first);
    const kv_job options = kv_job_of(&initial);
    worker workers[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){.steps = &steps, .number = i};
        EXPECT_OK(kv_prepare(steps.source.layout, steps.destination.layout, &options,
                                        &workers[i].transfer, ERR));
    }
    threads_run(THREADS, work, workers, sizeof(workers[0]));
    for (uint32_t i = 0; i < THREADS; i++) {
        for (uint32_t round = 0; round < ROUNDS; round++) {
            kvmem_block_pair pairs[8];
            const kv_move move = {pairs, pairs_of_round(pairs, i, round), 0, 0, LAYERS};
            kv_expect_moved(&steps.destination, &steps.source, &move);
        }
        kvmem_transfer_destroy(workers[i].transfer);
    }
    kv_side_check(&steps.destination);
}

/* Threads that share a transfer: each submission succeeds or fails, and each that succeeded has its own
   completion. */
static void *share(void *argument) {
    worker *worker = argument;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const kv_move move = worker->number % 2 == 0 ? MOVE(more) : MOVE(fewer);
        const kvmem_submit_options step = step_of(&move, move.num_pairs);
        const kvmem_status status = round % 3 == 0 ? kvmem_transfer_submit(worker->transfer, NULL, NULL)
                                                   : kvmem_transfer_submit(worker->transfer, &step, NULL);
        CHECK(status == KVMEM_STATUS_OK || status == KVMEM_STATUS_BUSY);
        worker->started += status == KVMEM_STATUS_OK;
        kvmem_transfer_info info;
        CHECK_EQ(kvmem_transfer_get_info(worker->transfer, &info, NULL), KVMEM_STATUS_OK);
        CHECK_EQ(kvmem_transfer_wait(worker->transfer, PATIENCE, NULL), KVMEM_STATUS_OK);
    }
    return NULL;
}

TEST(threads_that_share_a_transfer_start_one_run_at_a_time) {
    const kv_move move = MOVE(more), other = MOVE(fewer);
    OPENED(flight, steps, &MOVE(first), 0);
    run_step(&steps, &move, move.num_pairs);
    worker workers[THREADS];
    for (uint32_t i = 0; i < THREADS; i++)
        workers[i] = (worker){.steps = &steps, .transfer = steps.transfer, .number = i};
    threads_run(THREADS, share, workers, sizeof(workers[0]));
    uint32_t started = 0;
    for (uint32_t i = 0; i < THREADS; i++) started += workers[i].started;
    CHECK(started > 0);
    for (uint32_t i = 0; i < started; i++) {
        const kvmem_completion completion = next_completion(steps.queue);
        CHECK_EQ(completion.status, KVMEM_STATUS_OK);
        CHECK_EQ(completion.bytes, completion.user_data * BLOCK);
    }
    flight_expect_none(&steps);
    run_step(&steps, &other, 1); /* pairs that maybe only one thread has moved */
}
