// SPDX-License-Identifier: Apache-2.0
// Concurrent transfers through one agent: a thousand in one queue, and four threads that do not wait for each
// other.
#include "harness.h"

#define MANY 1000
#define THREADS 4
#define ROUNDS 50

KV_PEER_ROLE

static kvmem_layout_config blocks(uint64_t count) {
    return WITH(kv_config(&kv_kinds[0]), it.num_blocks = count);
}

/* Transfer i writes block i of this side to block MANY - 1 - i of the other. */
static kvmem_transfer *create_nth(kv_meeting *fixture, kvmem_queue *queue, uint32_t i) {
    const kv_move move = KV_MOVE(3, {i, MANY - 1 - i});
    kv_expect_moved(&fixture->peer.model, &fixture->side, &move);
    return MADE(kvmem_transfer, kv_prepare, fixture->side.layout, fixture->peer.model.layout,
                KV_JOB(&move, it.transfer.queue = queue, it.run.user_data = i));
}

TEST(a_thousand_in_one_queue_all_arrive_once) {
    const kvmem_layout_config config = blocks(MANY);
    OPENED(kv_meeting, fixture, "near", "far", &config, &config);
    OWN(kvmem_queue, queue, kvmem_queue_create);
    CLEANUP(test_free) kvmem_transfer **transfers = test_allocate(MANY * sizeof(*transfers));
    CLEANUP(test_free) unsigned char *seen = test_allocate(MANY);
    for (uint32_t i = 0; i < MANY; i++) transfers[i] = create_nth(&fixture, queue, i);
    for (uint32_t i = 0; i < MANY; i++) EXPECT_OK(kvmem_transfer_submit(transfers[i], NULL, ERR));
    for (size_t taken = 0; taken < MANY;) {
        kvmem_completion completions[16];
        GET(size_t, count, kvmem_queue_wait, queue, PATIENCE, completions, NUM(completions));
        for (size_t i = 0; i < count; i++, taken++) {
            CHECK_EQ(completions[i].status, KVMEM_STATUS_OK);
            CHECK_EQ(completions[i].bytes, 3 * 2 * 48);
            CHECK(completions[i].user_data < MANY);
            CHECK_EQ(seen[completions[i].user_data]++, 0);
        }
    }
    kv_peer_check(&fixture.peer);
    for (uint32_t i = 0; i < MANY; i++) kvmem_transfer_destroy(transfers[i]);
}

typedef struct worker {
    kv_meeting *fixture;
    kvmem_block_pair pairs[8];
    kvmem_status status; /* the first failure; read after the thread was joined */
} worker;

/* Creates, submits and waits for its own blocks without the harness, whose checks belong to the main
   thread. */
static kvmem_status run_once(const worker *worker, const kvmem_layout *source,
                             const kvmem_layout *destination) {
    const kv_move move = {worker->pairs, NUM(worker->pairs), 0, 0, 3};
    OWNED(kvmem_transfer) transfer = NULL;
    kvmem_status status = kv_prepare(source, destination, KV_JOB(&move), &transfer, NULL);
    THEN(status, kvmem_transfer_submit(transfer, NULL, NULL));
    THEN(status, kvmem_transfer_wait(transfer, PATIENCE, NULL));
    return status;
}

static void *work(void *argument) {
    worker *worker = argument;
    const kvmem_layout *here = worker->fixture->side.layout;
    const kvmem_layout *there = worker->fixture->peer.model.layout;
    worker->status = KVMEM_STATUS_OK;
    for (int round = 0; round < ROUNDS && worker->status == KVMEM_STATUS_OK; round++) {
        worker->status = run_once(worker, here, there);
        THEN(worker->status, run_once(worker, there, here));
    }
    return NULL;
}

/* Pair k of worker w: block 8w + k to itself, so that writing and reading back leaves this side unchanged. */
static void take_blocks(worker *worker, uint32_t w, kv_meeting *fixture) {
    worker->fixture = fixture;
    for (uint32_t k = 0; k < 8; k++) worker->pairs[k] = (kvmem_block_pair){8 * w + k, 8 * w + k};
    kv_expect_moved(&fixture->peer.model, &fixture->side, &(kv_move){worker->pairs, 8, 0, 0, 3});
}

TEST(four_threads_submit_concurrently) {
    const kvmem_layout_config config = blocks(THREADS * 8);
    OPENED(kv_meeting, fixture, "near", "far", &config, &config);
    worker workers[THREADS];
    for (uint32_t w = 0; w < THREADS; w++) take_blocks(&workers[w], w, &fixture);
    threads_run(THREADS, work, workers, sizeof(workers[0]));
    for (uint32_t w = 0; w < THREADS; w++) CHECK_EQ(workers[w].status, KVMEM_STATUS_OK);
    kv_side_check(&fixture.side);
    kv_peer_check(&fixture.peer);
}

#define RACES 500

/* For two threads that submit, wait and cancel: a transfer per thread, and one that they share. */
typedef struct racer {
    kvmem_transfer *own;
    kvmem_transfer *shared;
    uint64_t begun; /* runs of the shared transfer that this thread has submitted */
    kvmem_status status; /* the first unexpected status; read after the thread was joined */
} racer;

static kvmem_status expected_end(kvmem_status status) {
    return status == KVMEM_STATUS_CANCELLED ? KVMEM_STATUS_OK : status;
}

static void *race(void *argument) {
    racer *racer = argument;
    for (int round = 0; round < RACES && racer->status == KVMEM_STATUS_OK; round++) {
        racer->status = kvmem_transfer_submit(racer->own, NULL, NULL);
        const kvmem_status shared = kvmem_transfer_submit(racer->shared, NULL, NULL);
        racer->begun += shared == KVMEM_STATUS_OK;
        if (shared != KVMEM_STATUS_BUSY) THEN(racer->status, shared);
        if (round % 3 == 1) THEN(racer->status, kvmem_transfer_cancel(racer->own, NULL));
        if (round % 3 == 2) THEN(racer->status, kvmem_transfer_cancel(racer->shared, NULL));
        THEN(racer->status, expected_end(kvmem_transfer_wait(racer->own, PATIENCE, NULL)));
        THEN(racer->status, expected_end(kvmem_transfer_wait(racer->shared, PATIENCE, NULL)));
    }
    return NULL;
}

/* The pairs of the racing transfers: few blocks, which the submitting thread moves itself, and all blocks. */
static kvmem_transfer *create_racing(kv_meeting *fixture, kvmem_queue *queue, uint32_t first,
                                     uint32_t count) {
    kvmem_block_pair pairs[64];
    for (uint32_t i = 0; i < count; i++) pairs[i] = (kvmem_block_pair){first + 2 * i, first + 2 * i};
    const kv_move move = {pairs, count, 0, 0, 3};
    kv_expect_moved(&fixture->peer.model, &fixture->side, &move);
    return MADE(kvmem_transfer, kv_prepare, fixture->side.layout, fixture->peer.model.layout,
                KV_JOB(&move, it.transfer.queue = queue));
}

TEST(two_threads_submit_wait_and_cancel_on_one_agent) {
    const kvmem_layout_config config = blocks(256);
    OPENED(kv_meeting, fixture, "near", "far", &config, &config);
    OWN(kvmem_queue, queue, kvmem_queue_create);
    OWNED(kvmem_transfer) few = create_racing(&fixture, NULL, 0, 8);
    OWNED(kvmem_transfer) many = create_racing(&fixture, NULL, 16, 64);
    OWNED(kvmem_transfer) shared = create_racing(&fixture, queue, 145, 32);
    EXPECT_OK(kvmem_transfer_submit(shared, NULL, ERR));
    EXPECT_OK(kvmem_transfer_wait(shared, PATIENCE, ERR));
    racer racers[2] = {{few, shared, 0, KVMEM_STATUS_OK}, {many, shared, 0, KVMEM_STATUS_OK}};
    threads_run(2, race, racers, sizeof(racers[0]));
    for (size_t i = 0; i < 2; i++) CHECK_EQ(racers[i].status, KVMEM_STATUS_OK);
    for (uint64_t left = 1 + racers[0].begun + racers[1].begun; left > 0;) {
        kvmem_completion completions[16];
        GET(size_t, count, kvmem_queue_wait, queue, PATIENCE, completions, NUM(completions));
        CHECK(count <= left);
        left -= count;
    }
    kvmem_transfer *const all[] = {few, many, shared};
    for (size_t i = 0; i < 3; i++) {
        EXPECT_OK(kvmem_transfer_submit(all[i], NULL, ERR));
        EXPECT_OK(kvmem_transfer_wait(all[i], PATIENCE, ERR));
    }
    kv_side_check(&fixture.side);
    kv_peer_check(&fixture.peer);
    EXPECT_OK(kvmem_agent_invalidate_remote_metadata(fixture.agent, "far", NULL, ERR));
}

/* Submits the transfer again for each completion. */
typedef struct relay {
    kvmem_transfer *transfer;
    kvmem_queue *queue;
    atomic_int *left;
    kvmem_status status;
} relay;

static void *pass_on(void *argument) {
    relay *relay = argument;
    while (relay->status == KVMEM_STATUS_OK) {
        kvmem_completion completion;
        size_t count = 0;
        relay->status = kvmem_queue_wait(relay->queue, PATIENCE, &completion, 1, &count, NULL);
        THEN(relay->status, completion.status);
        /* The second to last completion ends this thread, after it has submitted the last run; that one ends
           the other thread. */
        const int left = atomic_fetch_sub(relay->left, 1);
        if (left > 0) THEN(relay->status, kvmem_transfer_submit(relay->transfer, NULL, NULL));
        if (left <= 1) break;
    }
    return NULL;
}

/* The end of a run may be reported before the submitting call returns: another thread that gets the
   completion then submits the next run. */
TEST(a_thread_that_gets_the_completion_may_submit_the_next_run) {
    const kvmem_layout_config config = blocks(16);
    OPENED(kv_meeting, fixture, "near", "far", &config, &config);
    OWN(kvmem_queue, queue, kvmem_queue_create);
    OWNED(kvmem_transfer) transfer = create_racing(&fixture, queue, 0, 4);
    atomic_int left = 4 * RACES;
    relay relays[2] = {{transfer, queue, &left, KVMEM_STATUS_OK}, {transfer, queue, &left, KVMEM_STATUS_OK}};
    EXPECT_OK(kvmem_transfer_submit(transfer, NULL, ERR));
    threads running;
    threads_start(&running, 2, pass_on, relays, sizeof(relays[0]));
    threads_join(&running);
    for (size_t i = 0; i < 2; i++) CHECK_EQ(relays[i].status, KVMEM_STATUS_OK);
    kv_peer_check(&fixture.peer);
}

/* One thread waits for notifications all the time. It must not starve the transfers, nor be starved. */
static void *wait_for_note(void *argument) {
    worker *worker = argument;
    OWNED(kvmem_notifications) taken = NULL;
    worker->status = kvmem_agent_take_notifications(worker->fixture->agent, PATIENCE, &taken, NULL);
    return NULL;
}

TEST(waiting_for_notifications_blocks_no_other_thread) {
    const kvmem_layout_config config = blocks(8);
    OPENED(kv_meeting, fixture, "near", "far", &config, &config);
    worker waiting = {.fixture = &fixture, .status = KVMEM_STATUS_PANIC};
    threads thread;
    threads_start(&thread, 1, wait_for_note, &waiting, sizeof(waiting));
    const kv_move move = KV_MOVE(3, {1, 2});
    for (int i = 0; i < ROUNDS; i++) kv_run(fixture.side.layout, fixture.peer.model.layout, &move);
    kv_peer_notify(&fixture.peer, "near", "enough", 6);
    threads_join(&thread);
    CHECK_EQ(waiting.status, KVMEM_STATUS_OK);
}

#define NOTES 50

/* Reads as many notifications as are sent. */
static void *take_notes(void *argument) {
    worker *worker = argument;
    worker->status = KVMEM_STATUS_OK;
    for (size_t taken = 0; taken < NOTES && worker->status == KVMEM_STATUS_OK;) {
        OWNED(kvmem_notifications) notes = NULL;
        worker->status = kvmem_agent_take_notifications(worker->fixture->agent, PATIENCE, &notes, NULL);
        taken += notes->count;
    }
    return NULL;
}

/* Commands, which the agent's own thread runs. */
static void *register_and_deregister(void *argument) {
    static unsigned char memory[4096];
    worker *worker = argument;
    kvmem_adopt_options options = OPTIONS(kvmem_adopt_options, it.address = memory, it.size = sizeof(memory));
    worker->status = KVMEM_STATUS_OK;
    for (int round = 0; round < ROUNDS && worker->status == KVMEM_STATUS_OK; round++) {
        OWNED(kvmem_region) region = NULL;
        OWNED(kvmem_registration) registration = NULL;
        worker->status = kvmem_region_adopt_host(&options, &region, NULL);
        THEN(worker->status, kvmem_region_register(region, worker->fixture->agent, &registration, NULL));
    }
    return NULL;
}

/* A thread that waits for a transfer does the agent's work itself if no other thread does. The work of the
   other threads must be done too, and none may be lost. */
TEST(waiters_notifications_and_commands_share_the_agent) {
    enum { WAITERS = 3, ALL = 5 };
    void *(*const bodies[ALL])(void *) = {work, work, work, take_notes, register_and_deregister};
    const kvmem_layout_config config = blocks(WAITERS * 8);
    OPENED(kv_meeting, fixture, "near", "far", &config, &config);
    worker workers[ALL];
    pthread_t threads[ALL];
    for (uint32_t w = 0; w < WAITERS; w++) take_blocks(&workers[w], w, &fixture);
    for (size_t i = 0; i < ALL; i++) {
        workers[i].fixture = &fixture;
        CHECK_EQ(pthread_create(&threads[i], NULL, bodies[i], &workers[i]), 0);
    }
    for (int i = 0; i < NOTES; i++) {
        kv_peer_notify(&fixture.peer, "near", &i, sizeof(i));
        EXPECT_OK(kvmem_agent_check_remote_metadata(fixture.agent, "far", ERR));
    }
    for (size_t i = 0; i < ALL; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    for (size_t i = 0; i < ALL; i++) CHECK_EQ(workers[i].status, KVMEM_STATUS_OK);
    kv_side_check(&fixture.side);
    kv_peer_check(&fixture.peer);
}

/* One of two threads that build a layout over the same region. */
typedef struct building {
    kvmem_layout_options options;
    pthread_barrier_t *start;
    kvmem_region *region;
    kvmem_layout *layout;
    kvmem_error *error;
    kvmem_status status;
} building;

static void *build(void *argument) {
    building *building = argument;
    pthread_barrier_wait(building->start);
    building->status = kvmem_layout_build(&building->options, &building->layout, &building->error);
    return NULL;
}

/* Two threads work on one region; both succeed. */
static void build_concurrently(building both[2], void *(*body)(void *), const kvmem_layout_config *config,
                               kvmem_agent *agent, kvmem_region *region) {
    pthread_barrier_t start;
    CHECK_EQ(pthread_barrier_init(&start, NULL, 2), 0);
    for (size_t i = 0; i < 2; i++) {
        both[i] = (building){.start = &start, .region = region};
        both[i].options = OPTIONS(kvmem_layout_options, it.config = config, it.agent = agent,
                                  it.source = KVMEM_LAYOUT_REGIONS, it.regions = &both[i].region,
                                  it.count = 1);
    }
    threads_run(2, body, both, sizeof(both[0]));
    CHECK_EQ(pthread_barrier_destroy(&start), 0);
    for (size_t i = 0; i < 2; i++) {
        if (both[i].status != KVMEM_STATUS_OK)
            FAIL("thread %zu: %s", i, kvmem_error_message(both[i].error, NULL));
    }
}

TEST(layouts_over_one_region_are_built_by_two_threads) {
    OWNED(kvmem_agent) agent = agent_open("near");
    for (int round = 0; round < ROUNDS; round++) {
        OWNED(kvmem_region) region = region_create_system(MIB, 0);
        building both[2];
        build_concurrently(both, build, REF(kv_config(&kv_kinds[0])), agent, region);
        /* They share one registration, which exists until the second layout is destroyed. */
        OWNED(kvmem_registration) registration = NULL;
        for (size_t i = 0; i < NUM(both); i++) {
            EXPECT(KVMEM_STATUS_ALREADY_EXISTS, kvmem_region_register(region, agent, &registration, ERR));
            kvmem_layout_destroy(both[i].layout);
        }
        EXPECT_OK(kvmem_region_register(region, agent, &registration, ERR));
    }
}

/* One of two threads that repeatedly build layouts over the same region and destroy them. */
static void *build_and_destroy(void *argument) {
    building *building = argument;
    building->status = KVMEM_STATUS_OK;
    pthread_barrier_wait(building->start);
    for (int round = 0; round < 20 * ROUNDS && building->status == KVMEM_STATUS_OK; round++) {
        building->status = kvmem_layout_build(&building->options, &building->layout, &building->error);
        kvmem_layout_destroy(building->layout);
    }
    return NULL;
}

/* The last layout destroys the registration while the other thread requests it. */
TEST(layouts_over_one_region_are_built_while_others_are_destroyed) {
    OWNED(kvmem_agent) agent = agent_open("near");
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OWNED(kvmem_region) region = region_create_system(MIB, 0);
    building both[2];
    build_concurrently(both, build_and_destroy, &config, agent, region);
}
