// SPDX-License-Identifier: Apache-2.0
// Transfers whose requests fail, stay in flight, or lose their peer, with the stand-in for NIXL: when a run
// ends, which requests NIXL still has then, and what can be done with the peer meanwhile.
#include "stand_in.h"

KV_PEER_ROLE

#define NUM_BLOCKS 128
/* A request has at most 8192 descriptors, and 65536 descriptors are kept between runs. */
#define MANY_BLOCKS (10 * 8192)

/* 32 MiB, which need two requests. */
static kvmem_layout_config two_requests(void) {
    return WITH(kv_large_config(&kv_kinds[0]), it.num_blocks = NUM_BLOCKS);
}

/* All blocks in reverse order, by a path or by any. */
static kvmem_transfer *create_by(uint32_t method, const kvmem_layout *source, const kvmem_layout *destination,
                                 uint64_t num_blocks, uint64_t num_layers) {
    static kvmem_block_pair pairs[MANY_BLOCKS];
    for (uint64_t i = 0; i < num_blocks; i++) pairs[i] = (kvmem_block_pair){i, num_blocks - 1 - i};
    const kv_move all = {pairs, num_blocks, 0, 0, num_layers};
    return MADE(kvmem_transfer, kv_prepare, source, destination, KV_JOB(&all, it.transfer.method = method));
}

static kvmem_transfer *create(const kvmem_layout *source, const kvmem_layout *destination,
                              uint64_t num_blocks, uint64_t num_layers) {
    return create_by(0, source, destination, num_blocks, num_layers);
}

/* Two agents of this process, and a transfer of one or two requests between them. */
typedef struct pair {
    kvmem_agent *near, *far;
    kv_side near_side, far_side;
    kvmem_region *region; /* of the near side */
    kvmem_layout *local, *remote;
    kvmem_transfer *transfer;
} pair;

static void pair_open(pair *pair, const kvmem_layout_config *config) {
    nixl_find_stand_in();
    pair->near = agent_open("near");
    pair->far = agent_open("far");
    kv_model_open(&pair->near_side, config, 1);
    kv_side_open(&pair->far_side, config, pair->far, 2);
    unsigned char *memory = pair->near_side.memory + pair->near_side.starts[0];
    pair->region = region_adopt_noting_release(memory, kv_region_size(config));
    pair->local = regions_lay_out(config, &pair->region, 1, pair->near);
    CLEANUP(message_free) message metadata = agent_metadata(pair->far);
    agent_load(pair->near, &metadata);
    CLEANUP(message_free) message descriptor = layout_descriptor(pair->far_side.layout);
    EXPECT_OK(kvmem_layout_import(pair->near, descriptor.data, descriptor.size, &pair->remote, ERR));
    pair->transfer = create(pair->remote, pair->local, config->num_blocks, config->num_layers);
}

static void pair_destroy_handles(pair *pair) {
    kvmem_transfer_destroy(pair->transfer);
    kvmem_layout_destroy(pair->local);
    kvmem_layout_destroy(pair->remote);
    kvmem_region_destroy(pair->region);
    kvmem_agent_destroy(pair->near);
}

static void pair_close(pair *pair) {
    const int releases = releases_count();
    pair_destroy_handles(pair);
    await_releases(releases + 1);
    kv_side_close(&pair->near_side);
    kv_side_close(&pair->far_side);
    kvmem_agent_destroy(pair->far);
}

/* A transfer of ten requests with a descriptor per block. */
static void pair_open_many(pair *pair) {
    pair_open(pair, REF(WITH(kv_config(&kv_kinds[0]), it.num_blocks = MANY_BLOCKS, it.num_layers = 1,
                             it.page_size = 1)));
    kvmem_transfer_destroy(pair->transfer);
    pair->transfer = create_by(KVMEM_METHOD_NIXL, pair->remote, pair->local, MANY_BLOCKS, 1);
}

static kvmem_status run(kvmem_transfer *transfer) {
    const kvmem_status status = kvmem_transfer_submit(transfer, NULL, ERR);
    return status == KVMEM_STATUS_OK ? kvmem_transfer_wait(transfer, PATIENCE, ERR) : status;
}

static nixl_sim_requests requests(void) { return NIXL(nixl_sim_get_requests()); }

static void expect_failure_then_success(pair *pair) {
    EXPECT(KVMEM_STATUS_NIXL, run(pair->transfer));
    CHECK_EQ(requests().alive, 0); /* when the run has ended, NIXL has none of its requests */
    NIXL(nixl_sim_set_pending(0));
    EXPECT_OK(run(pair->transfer));
    CHECK_EQ(requests().reposts, 0);
}

TEST(a_request_that_is_not_posted_is_released_before_the_end) {
    pair pair;
    pair_open(&pair, REF(kv_config(&kv_kinds[0])));
    NIXL(nixl_sim_fail_post(1));
    expect_failure_then_success(&pair);
    pair_close(&pair);
    CHECK_EQ(requests().alive, 0);
}

TEST(a_request_that_fails_in_flight_is_released_before_the_end) {
    pair pair;
    pair_open(&pair, REF(kv_config(&kv_kinds[0])));
    EXPECT_OK(run(pair.transfer));
    CHECK_EQ(requests().alive, 1); /* for the next run */
    NIXL(nixl_sim_set_pending(1));
    NIXL(nixl_sim_fail_status(1));
    expect_failure_then_success(&pair);
    pair_close(&pair);
    CHECK_EQ(requests().alive, 0);
}

TEST(if_one_of_two_requests_fails_both_are_created_again) {
    pair pair;
    pair_open(&pair, REF(two_requests()));
    NIXL(nixl_sim_fail_post(2));
    expect_failure_then_success(&pair);
    CHECK_EQ(requests().alive, 2);
    pair_close(&pair);
    CHECK_EQ(requests().alive, 0);
}

TEST(requests_are_created_while_earlier_ones_are_in_flight_and_some_are_kept) {
    pair pair;
    pair_open_many(&pair);
    for (int round = 0; round < 2; round++) {
        const uint64_t kept = round == 0 ? 0 : 8;
        NIXL(nixl_sim_set_pending(1));
        const uint64_t posts = requests().posts;
        EXPECT_OK(kvmem_transfer_submit(pair.transfer, NULL, ERR));
        AWAIT(requests().posts == posts + 4);
        CHECK_EQ(requests().alive, kept == 0 ? 4 : kept); /* none before it can be posted */
        NIXL(nixl_sim_set_pending(0));
        EXPECT_OK(kvmem_transfer_wait(pair.transfer, PATIENCE, ERR));
        CHECK_EQ(requests().posts, posts + 10);
        CHECK_EQ(requests().alive, 8);
    }
    /* The tenth, which belongs to this run alone. */
    NIXL(nixl_sim_fail_post(10));
    expect_failure_then_success(&pair);
    pair_close(&pair);
    CHECK_EQ(requests().alive, 0);
}

/* A peer process, and a transfer of two requests from it. */
typedef struct remote_pair {
    kvmem_agent *near;
    kv_side side;
    kv_peer peer;
    kvmem_transfer *transfer;
} remote_pair;

static void remote_pair_open(remote_pair *remote_pair) {
    const kvmem_layout_config config = two_requests();
    nixl_find_stand_in();
    remote_pair->near = agent_open("near");
    kv_side_open(&remote_pair->side, &config, remote_pair->near, 1);
    kv_peer_open(&remote_pair->peer, "victim", &config, 2);
    kv_peer_meet(&remote_pair->peer, remote_pair->near);
    remote_pair->transfer = create(remote_pair->peer.model.layout, remote_pair->side.layout, config.num_blocks,
                                   config.num_layers);
    NIXL(nixl_sim_set_pending(1));
}

/* Completes the requests in NIXL. */
static void remote_pair_close(remote_pair *remote_pair) {
    NIXL(nixl_sim_set_pending(0));
    kvmem_transfer_destroy(remote_pair->transfer);
    kv_peer_close(&remote_pair->peer);
    kv_side_close(&remote_pair->side);
    kvmem_agent_destroy(remote_pair->near);
    AWAIT(requests().alive == 0);
}

TEST(a_cancelled_run_ends_if_its_peer_dies) {
    OPENED(remote_pair, remote_pair);
    NIXL(nixl_sim_hold(NIXL_SIM_POST));
    EXPECT_OK(kvmem_transfer_submit(remote_pair.transfer, NULL, ERR));
    AWAIT(NIXL(nixl_sim_waiting()) == 1);
    EXPECT_OK(kvmem_transfer_cancel(remote_pair.transfer, ERR)); /* before the second request is posted */
    NIXL(nixl_sim_go());
    AWAIT(requests().in_flight == 1);
    kv_peer_crash(&remote_pair.peer);
    EXPECT(KVMEM_STATUS_CANCELLED, kvmem_transfer_wait(remote_pair.transfer, PATIENCE, ERR));
    EXPECT(KVMEM_STATUS_BUSY, kvmem_transfer_submit(remote_pair.transfer, NULL, ERR));
    EXPECT_OK(kvmem_agent_invalidate_remote_metadata(remote_pair.near, "victim", ERR));
    CHECK_EQ(requests().in_flight, 1);
}

TEST(a_failed_run_ends_if_its_peer_dies) {
    OPENED(remote_pair, remote_pair);
    const uint64_t posts = requests().posts;
    NIXL(nixl_sim_fail_post(2));
    EXPECT_OK(kvmem_transfer_submit(remote_pair.transfer, NULL, ERR));
    AWAIT(requests().posts == posts + 2);
    CHECK_EQ(requests().in_flight, 1);
    kv_peer_crash(&remote_pair.peer);
    EXPECT_MESSAGE(KVMEM_STATUS_PEER_LOST, "victim", kvmem_transfer_wait(remote_pair.transfer, PATIENCE, ERR));
}

typedef struct invalidation {
    kvmem_agent *agent;
    atomic_int thread;
    kvmem_status status;
    char message[256];
} invalidation;

static void *invalidate(void *argument) {
    invalidation *mine = argument;
    OWNED(kvmem_error) error = NULL;
    mine->thread = gettid();
    mine->status = kvmem_agent_invalidate_remote_metadata(mine->agent, "far", &error);
    snprintf(mine->message, sizeof(mine->message), "%s", kvmem_error_message(error, NULL));
    return NULL;
}

static bool is_asleep(pid_t thread) {
    char path[64];
    char text[512] = "";
    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", thread);
    CLEANUP(test_close) const int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    CHECK(read(fd, text, sizeof(text) - 1) > 0);
    return strstr(text, ") S ") != NULL;
}

/* While the agent is between two requests, NIXL has no request of the transfer. The second one exists already. */
TEST(a_run_whose_peer_is_invalidated_between_two_requests_completes) {
    static invalidation mine;
    pthread_t thread;
    OPENED(pair, pair, REF(two_requests()));
    NIXL(nixl_sim_hold(NIXL_SIM_POST));
    EXPECT_OK(kvmem_transfer_submit(pair.transfer, NULL, ERR));
    AWAIT(NIXL(nixl_sim_waiting()) == 1);
    mine.agent = pair.near;
    CHECK_EQ(pthread_create(&thread, NULL, invalidate, &mine), 0);
    AWAIT(mine.thread != 0 && is_asleep(mine.thread)); /* it waits for the agent, which is in a post */
    NIXL(nixl_sim_go());
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(mine.status, KVMEM_STATUS_OK);
    EXPECT_OK(kvmem_transfer_wait(pair.transfer, PATIENCE, ERR));
    EXPECT(KVMEM_STATUS_STALE, kvmem_transfer_submit(pair.transfer, NULL, ERR));
    AWAIT(requests().alive == 0);
}

/* It chooses its further requests from a list that was prepared before. */
TEST(a_run_of_many_requests_completes_after_its_peer_was_invalidated) {
    pair pair;
    pair_open_many(&pair);
    NIXL(nixl_sim_set_pending(1));
    EXPECT_OK(kvmem_transfer_submit(pair.transfer, NULL, ERR));
    AWAIT(requests().in_flight == 4);
    EXPECT_OK(kvmem_agent_invalidate_remote_metadata(pair.near, "far", ERR));
    NIXL(nixl_sim_set_pending(0));
    EXPECT_OK(kvmem_transfer_wait(pair.transfer, PATIENCE, ERR));
    EXPECT(KVMEM_STATUS_STALE, kvmem_transfer_submit(pair.transfer, NULL, ERR));
    AWAIT(requests().alive == 0);
    pair_close(&pair);
}

/* A call into NIXL has no time limit. A kvmem call that has one, and changes nothing, ends in time. */
TEST(calls_with_a_limit_end_though_nixl_does_not_return) {
    OPENED(pair, pair, REF(two_requests()));
    const kvmem_nixl_descriptor memory = memory_at(&pair, sizeof(pair));
    const kvmem_nixl_options soon = OPTIONS(kvmem_nixl_options, it.timeout_ns = MILLISECONDS(1));
    NIXL(nixl_sim_hold(NIXL_SIM_POST));
    EXPECT_OK(kvmem_transfer_submit(pair.transfer, NULL, ERR));
    AWAIT(NIXL(nixl_sim_waiting()) == 1);
    REFUSE(KVMEM_STATUS_TIMED_OUT, "agent 'near'", kvmem_agent_take_notifications, pair.near,
           MILLISECONDS(1));
    CHECK_HAS(test_last_message(), "has not returned");
    REFUSE(KVMEM_STATUS_TIMED_OUT, "has not returned", kvmem_agent_query, pair.near, &memory, 1, &soon);
    EXPECT_MESSAGE(KVMEM_STATUS_TIMED_OUT, "has not returned", kvmem_agent_connect(pair.near, "far", &soon, ERR));
    NIXL(nixl_sim_go());
    EXPECT_OK(kvmem_transfer_wait(pair.transfer, PATIENCE, ERR));
    REFUSE(KVMEM_STATUS_TIMED_OUT, "in time", kvmem_agent_take_notifications, pair.near, MILLISECONDS(1));
}

static kvmem_transfer *create_limited(const pair *pair, const kvmem_layout_config *config, uint32_t method,
                                      bool reads, uint64_t timeout_ns);

/* Either thread may do the work: the agent's thread, if it has woken up before. The run is too long for the
   submitting thread. */
TEST(a_thread_that_waits_without_a_timeout_does_the_work_of_its_agent) {
    OPENED(pair, pair, REF(two_requests()));
    do {
        EXPECT_OK(kvmem_transfer_submit(pair.transfer, NULL, ERR));
        EXPECT_OK(kvmem_transfer_wait(pair.transfer, KVMEM_TIMEOUT_FOREVER, ERR));
    } while (requests().last_poster != gettid()); /* only the deadline of the process limits this */
}

/* A call into NIXL may never return. */
TEST(a_thread_that_waits_until_a_deadline_leaves_the_work_to_the_agents_thread) {
    const kvmem_layout_config config = two_requests();
    OPENED(pair, pair, &config);
    OWNED(kvmem_transfer) limited = create_limited(&pair, &config, KVMEM_METHOD_NIXL, true, SECONDS(3000));
    for (int i = 0; i < 20; i++) {
        EXPECT_OK(run(pair.transfer));
        CHECK(requests().last_poster != gettid());
        EXPECT_OK(kvmem_transfer_submit(limited, NULL, ERR));
        EXPECT_OK(kvmem_transfer_wait(limited, KVMEM_TIMEOUT_FOREVER, ERR));
        CHECK(requests().last_poster != gettid());
    }
}

/* Unless the agent's thread owns the agent at that moment, which is a race too. */
TEST(a_thread_that_submits_a_short_run_posts_it) {
    OPENED(pair, pair, REF(kv_config(&kv_kinds[0])));
    do {
        EXPECT_OK(kvmem_transfer_submit(pair.transfer, NULL, ERR));
        AWAIT(kvmem_transfer_poll(pair.transfer, ERR) == KVMEM_STATUS_OK);
    } while (requests().last_poster != gettid());
}

/* NIXL reports no end of a request whose peer it does not know any more. */
TEST(a_short_run_in_flight_ends_after_its_peer_was_invalidated) {
    OPENED(pair, pair, REF(kv_config(&kv_kinds[0])));
    NIXL(nixl_sim_set_pending(1));
    EXPECT_OK(kvmem_transfer_submit(pair.transfer, NULL, ERR));
    AWAIT(requests().in_flight == 1);
    EXPECT(KVMEM_STATUS_BUSY, kvmem_transfer_submit(pair.transfer, NULL, ERR));
    EXPECT_OK(kvmem_agent_invalidate_remote_metadata(pair.near, "far", ERR));
    EXPECT(KVMEM_STATUS_NOT_FOUND, kvmem_agent_check_remote_metadata(pair.near, "far", ERR));
    EXPECT(KVMEM_STATUS_NOT_FOUND, kvmem_agent_invalidate_remote_metadata(pair.near, "far", ERR));
    EXPECT_OK(kvmem_transfer_cancel(pair.transfer, ERR)); /* posted requests continue */
    EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(pair.transfer, ERR));
    NIXL(nixl_sim_set_pending(0));
    EXPECT_OK(kvmem_transfer_wait(pair.transfer, PATIENCE, ERR));
    EXPECT(KVMEM_STATUS_STALE, kvmem_transfer_submit(pair.transfer, NULL, ERR));
    AWAIT(requests().alive == 0);
}

/* NIXL has no memory to look, for example. That says nothing about the peer. */
TEST(a_peer_that_cannot_be_checked_stays_valid) {
    OPENED(pair, pair, REF(kv_config(&kv_kinds[0])));
    NIXL(nixl_sim_fail_check(1));
    EXPECT_MESSAGE(KVMEM_STATUS_NIXL, "check the loaded metadata of agent 'far'",
                   kvmem_agent_check_remote_metadata(pair.near, "far", ERR));
    EXPECT_OK(kvmem_agent_check_remote_metadata(pair.near, "far", ERR));
    EXPECT_OK(run(pair.transfer));
}

/* The blocks of the peer that a run may still write get no others. */
TEST(a_peer_gets_no_bytes_that_an_ended_run_may_overwrite) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    const kv_move first = KV_MOVE(3, {0, 1}), second = KV_MOVE(3, {0, 2});
    OPENED(pair, pair, &config);
    NIXL(nixl_sim_set_pending(NIXL_SIM_PENDING_ALL));
    OWN(kvmem_transfer, limited, kv_prepare, pair.local, pair.remote,
        KV_JOB(&first, it.transfer.method = KVMEM_METHOD_NIXL, it.run.timeout_ns = MILLISECONDS(100)));
    run_late(limited);
    OPENED(kv_side, other, &config, pair.near, 10);
    OWN(kvmem_transfer, same, kv_prepare, other.layout, pair.remote, KV_JOB(&first));
    OWN(kvmem_transfer, apart, kv_prepare, other.layout, pair.remote, KV_JOB(&second));
    EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "may still write to the destination", kvmem_transfer_submit(same, NULL, ERR));
    EXPECT_OK(kvmem_transfer_submit(apart, NULL, ERR));
    NIXL(nixl_sim_set_pending(NIXL_SIM_PENDING_NONE));
    EXPECT_OK(kvmem_transfer_wait(apart, PATIENCE, ERR));
    CHECK_EQ(submit_when_free(same), KVMEM_STATUS_OK);
    EXPECT_OK(kvmem_transfer_wait(same, PATIENCE, ERR));
}

/* The peer hangs: its requests never end. Another process of its name takes its place. */
TEST(a_replacement_is_loaded_while_requests_to_its_predecessor_are_in_flight) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OPENED(pair, pair, &config);
    NIXL(nixl_sim_set_pending(1));
    OWNED(kvmem_transfer) limited = create_limited(&pair, &config, KVMEM_METHOD_NIXL, true, MILLISECONDS(100));
    run_late(limited);
    CHECK_EQ(requests().in_flight, 1);
    /* A request in flight may still write to the blocks of its transfer, so each reads to others. */
    OPENED(kv_side, first, &config, pair.near, 10);
    OPENED(kv_side, second, &config, pair.near, 11);
    OPENED(kv_side, third, &config, pair.near, 12);
    kvmem_layout *const destinations[] = {first.layout, second.layout, third.layout};

    for (uint32_t generation = 0; generation < 3; generation++) {
        OWNED(kvmem_agent) risen = agent_open("far");
        OPENED(kv_side, side, &config, risen, 3 + generation);
        CLEANUP(message_free) message metadata = agent_metadata(risen);
        CLEANUP(message_free) message descriptor = layout_descriptor(side.layout);
        REFUSE(KVMEM_STATUS_ALREADY_EXISTS, "'far' is loaded already", kvmem_agent_load_remote_metadata, pair.near,
               metadata.data, metadata.size);
        EXPECT_OK(kvmem_agent_invalidate_remote_metadata(pair.near, "far", ERR));
        agent_load(pair.near, &metadata);
        agent_load(pair.near, &metadata); /* the same again */
        EXPECT_OK(kvmem_agent_check_remote_metadata(pair.near, "far", ERR));
        EXPECT_OK(kvmem_agent_notify(pair.near, "far", "x", 1, ERR));
        EXPECT_OK(kvmem_agent_connect(pair.near, "far", NULL, ERR));
        OWNED(kvmem_layout) remote = NULL;
        EXPECT_OK(kvmem_layout_import(pair.near, descriptor.data, descriptor.size, &remote, ERR));
        OWNED(kvmem_transfer) next = create(remote, destinations[generation], config.num_blocks, config.num_layers);
        EXPECT_OK(kvmem_transfer_submit(next, NULL, ERR));
        AWAIT(requests().in_flight == 2 + generation);
        EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(next, ERR));
    }
    CHECK_EQ(requests().in_flight, 4);
    NIXL(nixl_sim_set_pending(0));
    AWAIT(requests().in_flight == 0);
    EXPECT(KVMEM_STATUS_STALE, kvmem_transfer_submit(pair.transfer, NULL, ERR));
    EXPECT_OK(kvmem_agent_invalidate_remote_metadata(pair.near, "far", ERR));
    AWAIT(requests().alive == 0);
}

/* The request in flight ends after its transfer and layouts were destroyed: only then is the memory
   released. */
TEST(a_short_run_in_flight_keeps_the_memory_of_destroyed_handles) {
    pair pair;
    pair_open(&pair, REF(kv_config(&kv_kinds[0])));
    NIXL(nixl_sim_set_pending(1));
    EXPECT_OK(kvmem_transfer_submit(pair.transfer, NULL, ERR));
    AWAIT(requests().in_flight == 1);
    const int releases = releases_count();
    const uint64_t address = region_info(pair.region).address;
    pair_destroy_handles(&pair);
    CHECK_EQ(releases_count(), releases);
    CHECK_EQ(NIXL(nixl_sim_registered(address)), 1);
    NIXL(nixl_sim_set_pending(0));
    await_releases(releases + 1);
    kv_side_close(&pair.near_side);
    kv_side_close(&pair.far_side);
    kvmem_agent_destroy(pair.far);
    AWAIT(requests().alive == 0);
}

/* A transfer of some layers of all blocks through an arena of eight pages, with one page per chunk. */
static kvmem_transfer *create_staged_layers(const pair *pair, const kvmem_layout_config *config,
                                            uint64_t layer, uint64_t num_layers, uint64_t stall_timeout_ns) {
    kvmem_block_pair pairs[NUM_BLOCKS];
    for (uint64_t i = 0; i < config->num_blocks; i++)
        pairs[i] = (kvmem_block_pair){i, config->num_blocks - 1 - i};
    const kv_move move = {pairs, config->num_blocks, layer, layer, num_layers};
    return MADE(kvmem_transfer, kv_prepare, pair->remote, pair->local,
                KV_JOB(&move, it.transfer.method = KVMEM_METHOD_NIXL_STAGED, it.transfer.staging_size = 8 * 4096,
                           it.transfer.stall_timeout_ns = stall_timeout_ns));
}

static kvmem_transfer *create_staged(const pair *pair, const kvmem_layout_config *config,
                                     uint64_t stall_timeout_ns) {
    return create_staged_layers(pair, config, 0, config->num_layers, stall_timeout_ns);
}

/* 128 KiB. */
static kvmem_layout_config many_chunks(void) {
    return WITH(kv_config(&kv_kinds[0]), it.num_blocks = NUM_BLOCKS, it.inner_dim = 24);
}

/* Of the requests that were posted since then. */
static bool all_but_one_in_flight(uint64_t posts) {
    const nixl_sim_requests now = requests();
    return now.posts == posts + now.in_flight + 1;
}

TEST(a_chunk_that_fails_is_released_and_the_next_run_moves_all) {
    const kvmem_layout_config config = many_chunks();
    OPENED(pair, pair, &config);
    OWNED(kvmem_transfer) staged = create_staged(&pair, &config, 0);
    NIXL(nixl_sim_fail_post(3));
    EXPECT(KVMEM_STATUS_NIXL, run(staged));
    CHECK_EQ(requests().alive, 0);
    EXPECT_OK(run(staged));
    NIXL(nixl_sim_set_pending(1));
    NIXL(nixl_sim_fail_status(2));
    const uint64_t posts = requests().posts;
    EXPECT_OK(kvmem_transfer_submit(staged, NULL, ERR));
    AWAIT(all_but_one_in_flight(posts));
    NIXL(nixl_sim_set_pending(0));
    EXPECT(KVMEM_STATUS_NIXL, kvmem_transfer_wait(staged, PATIENCE, ERR));
    EXPECT_OK(run(staged));
    CHECK_EQ(requests().alive, 0);
}

TEST(chunks_in_flight_do_not_exceed_the_slots_of_a_peer_and_end_after_a_cancellation) {
    const kvmem_layout_config config = many_chunks();
    OPENED(pair, pair, &config);
    /* They are in flight at the same time, so each writes a different layer. */
    OWNED(kvmem_transfer) staged = create_staged_layers(&pair, &config, 0, 1, 0);
    OWNED(kvmem_transfer) second = create_staged_layers(&pair, &config, 1, 1, 0);
    OWNED(kvmem_transfer) third = create_staged_layers(&pair, &config, 2, 1, 0);
    NIXL(nixl_sim_set_pending(1));
    EXPECT_OK(kvmem_transfer_submit(staged, NULL, ERR));
    AWAIT(requests().in_flight == 4);
    EXPECT_OK(kvmem_transfer_submit(second, NULL, ERR));
    AWAIT(requests().in_flight == 6); /* a peer has six of the eight slots */
    EXPECT_OK(kvmem_transfer_submit(third, NULL, ERR)); /* it gets no slot before another run ends */
    EXPECT_OK(kvmem_transfer_cancel(staged, ERR));
    CHECK_EQ(requests().in_flight, 6);
    NIXL(nixl_sim_set_pending(0));
    EXPECT(KVMEM_STATUS_CANCELLED, kvmem_transfer_wait(staged, PATIENCE, ERR));
    EXPECT_OK(kvmem_transfer_wait(second, PATIENCE, ERR));
    EXPECT_OK(kvmem_transfer_wait(third, PATIENCE, ERR));
    CHECK_EQ(requests().alive, 0);
}

/* More writes than there are threads for verification. Each reads its blocks back. All of these reads begin, and other transfers are
   verified meanwhile. */
TEST(a_peer_that_does_not_respond_delays_no_other_verification) {
    kvmem_transfer *writes[20];
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OPENED(pair, pair, &config);
    KV_SIDES(from, to, config, config);
    const kv_move move = KV_MOVE(3, {6, 0}, {0, 5});
    const kv_job verified = WITH(kv_job_of(&move), it.transfer.flags = KVMEM_TRANSFER_VERIFY);
    NIXL(nixl_sim_set_moving(UINT64_MAX));
    NIXL(nixl_sim_set_pending(NIXL_SIM_PENDING_READS));
    for (size_t i = 0; i < NUM(writes); i++) {
        writes[i] = MADE(kvmem_transfer, kv_prepare, pair.local, pair.remote, &verified);
        EXPECT_OK(kvmem_transfer_submit(writes[i], NULL, ERR));
    }
    AWAIT(requests().in_flight == NUM(writes));
    OWN(kvmem_transfer, local, kv_prepare, from.layout, to.layout, &verified);
    RUN(local);
    CHECK_EQ(requests().in_flight, NUM(writes));
    /* The wait of a verification is limited by the caller. */
    OWN(kvmem_transfer, impatient, kv_prepare, pair.local, pair.remote,
        REF(WITH(verified, it.transfer.stall_timeout_ns = MILLISECONDS(10))));
    RUN_ENDS(KVMEM_STATUS_TIMED_OUT, "agent 'far' for 10 ms", impatient);
    NIXL(nixl_sim_set_pending(NIXL_SIM_PENDING_NONE));
    for (size_t i = 0; i < NUM(writes); i++) {
        EXPECT_OK(kvmem_transfer_wait(writes[i], PATIENCE, ERR));
        kvmem_transfer_destroy(writes[i]);
    }
    NIXL(nixl_sim_set_moving(0));
}

TEST(a_run_without_progress_ends_in_time) {
    const kvmem_layout_config config = many_chunks();
    OPENED(pair, pair, &config);
    OWNED(kvmem_transfer) staged = create_staged(&pair, &config, MILLISECONDS(10));
    NIXL(nixl_sim_set_pending(1));
    RUN_ENDS(KVMEM_STATUS_TIMED_OUT, "agent 'far' for 10 ms", staged);
    CHECK_HAS(test_last_message(), "stall_timeout_ns");
    EXPECT(KVMEM_STATUS_BUSY, kvmem_transfer_submit(staged, NULL, ERR));
    NIXL(nixl_sim_set_pending(0));
    AWAIT(requests().alive == 0);
    CHECK_EQ(submit_when_free(staged), KVMEM_STATUS_OK);
    EXPECT_OK(kvmem_transfer_wait(staged, PATIENCE, ERR));
}

static kvmem_transfer *create_limited(const pair *pair, const kvmem_layout_config *config, uint32_t method,
                                      bool reads, uint64_t timeout_ns) {
    kvmem_block_pair pairs[NUM_BLOCKS];
    for (uint64_t i = 0; i < config->num_blocks; i++) pairs[i] = (kvmem_block_pair){i, config->num_blocks - 1 - i};
    const kv_move all = {pairs, config->num_blocks, 0, 0, config->num_layers};
    const bool is_staged = method == KVMEM_METHOD_NIXL_STAGED;
    return MADE(kvmem_transfer, kv_prepare, reads ? pair->remote : pair->local,
                reads ? pair->local : pair->remote,
                KV_JOB(&all, it.transfer.method = method, it.transfer.staging_size = is_staged ? 8 * 4096 : 0,
                           it.run.timeout_ns = timeout_ns));
}

/* Of each method, a read and a write. */
static const uint32_t methods[] = {KVMEM_METHOD_NIXL, KVMEM_METHOD_NIXL, KVMEM_METHOD_NIXL_STAGED,
                                   KVMEM_METHOD_NIXL_STAGED};

/* Unlike the stall timeout, the deadline also ends a run that progresses, and one without staging memory. */
TEST(a_run_ends_at_its_deadline) {
    const kvmem_layout_config config = many_chunks();
    for (size_t i = 0; i < NUM(methods); i++) {
        OPENED(pair, pair, &config);
        OWNED(kvmem_transfer) limited = create_limited(&pair, &config, methods[i], i % 2 == 0, MILLISECONDS(100));
        NIXL(nixl_sim_set_pending(1));
        run_late(limited);
        EXPECT_MESSAGE(KVMEM_STATUS_TIMED_OUT, "with agent 'far' was not complete after 100 ms",
                       kvmem_transfer_poll(limited, ERR));
        CHECK_HAS(test_last_message(), "at least 0 of ");
        CHECK_HAS(test_last_message(), "timeout_ns");
        EXPECT(KVMEM_STATUS_BUSY, kvmem_transfer_submit(limited, NULL, ERR));
        NIXL(nixl_sim_set_pending(0));
        run_in_time(limited);
    }
}

/* The agent's thread is inside NIXL at that time, and the waiting thread never is. */
TEST(a_run_ends_at_its_deadline_though_nixl_does_not_return) {
    const kvmem_layout_config config = many_chunks();
    for (size_t i = 0; i < NUM(methods); i++) {
        OPENED(pair, pair, &config);
        OWNED(kvmem_transfer) limited = create_limited(&pair, &config, methods[i], i % 2 == 0, MILLISECONDS(100));
        NIXL(nixl_sim_hold(NIXL_SIM_POST));
        while (NIXL(nixl_sim_waiting()) == 0) { /* a run that is late before NIXL is called is not posted */
            if (kvmem_transfer_submit(limited, NULL, NULL) == KVMEM_STATUS_OK)
                EXPECT_MESSAGE(KVMEM_STATUS_TIMED_OUT, "with agent 'far'",
                               kvmem_transfer_wait(limited, KVMEM_TIMEOUT_FOREVER, ERR));
            sched_yield();
        }
        EXPECT(KVMEM_STATUS_BUSY, kvmem_transfer_submit(limited, NULL, ERR));
        NIXL(nixl_sim_go());
        run_in_time(limited);
    }
}

TEST(a_wait_ends_at_its_timeout_though_nixl_does_not_return) {
    OPENED(pair, pair, REF(two_requests()));
    for (int i = 0; i < 20; i++) { /* a thread that has to wake up rarely comes first */
        NIXL(nixl_sim_hold(NIXL_SIM_POST));
        EXPECT_OK(kvmem_transfer_submit(pair.transfer, NULL, ERR));
        EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait(pair.transfer, MILLISECONDS(60), ERR));
        NIXL(nixl_sim_go());
        EXPECT_OK(kvmem_transfer_wait(pair.transfer, PATIENCE, ERR));
    }
}

/* Callbacks run on one thread, in order. */
static void await_callbacks(void) {
    static unsigned char other[4096];
    const int releases = releases_count();
    kvmem_region_destroy(region_adopt_noting_release(other, sizeof(other)));
    await_releases(releases + 1);
}

/* The last case: the request that remains is counted in all later cases. */
TEST(memory_of_a_request_that_cannot_be_released_is_leaked) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    pair pair;
    pair_open(&pair, &config);
    const uint64_t address = region_info(pair.region).address;
    NIXL(nixl_sim_fail_post(1));
    NIXL(nixl_sim_fail_release(1));
    EXPECT(KVMEM_STATUS_NIXL, run(pair.transfer));
    EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "can't be detected", run(pair.transfer)); /* NIXL may still write */
    CHECK_EQ(requests().reposts, 0);
    const int releases = releases_count();
    pair_destroy_handles(&pair);
    await_callbacks();
    CHECK_EQ(releases_count(), releases + 1); /* the one of await_callbacks */
    CHECK_EQ(NIXL(nixl_sim_registered(address)), 1);
    kv_side_close(&pair.far_side);
    kvmem_agent_destroy(pair.far);
    free(pair.near_side.expected); /* memory that NIXL may access stays */
}

TEST(memory_of_an_unkept_request_that_cannot_be_released_is_leaked) {
    pair pair;
    pair_open_many(&pair);
    NIXL(nixl_sim_fail_release(1));
    EXPECT(KVMEM_STATUS_NIXL, run(pair.transfer));
    const int releases = releases_count();
    pair_destroy_handles(&pair);
    await_callbacks();
    CHECK_EQ(releases_count(), releases + 1); /* the one of await_callbacks */
    kv_side_close(&pair.far_side);
    kvmem_agent_destroy(pair.far);
    free(pair.near_side.expected); /* memory that NIXL may access stays */
}

/* Also one of the last cases. The request uses only a slot of the arena, not the memory of the layouts. */
TEST(a_run_after_a_request_that_cannot_be_released_uses_other_slots) {
    const kvmem_layout_config config = many_chunks();
    OPENED(pair, pair, &config);
    OWNED(kvmem_transfer) staged = create_staged(&pair, &config, 0);
    NIXL(nixl_sim_fail_post(1));
    NIXL(nixl_sim_fail_release(1));
    EXPECT(KVMEM_STATUS_NIXL, run(staged));
    EXPECT_OK(run(staged));
}

/* kvmem chose the method, so a transfer without staging memory takes another one. No other case has a peer of this name: what
   it measured of the stand-in, whose requests cost nothing, would choose the method here. */
TEST(a_transfer_whose_staging_memory_cannot_be_registered_takes_another_method) {
    nixl_find_stand_in();
    const kvmem_layout_config near_config =
        WITH(kv_config(&kv_kinds[0]), it.num_layers = 64, it.num_blocks = 64, it.order = KVMEM_ORDER_LAYER_SEPARATE);
    const kvmem_layout_config far_config = WITH(near_config, it.order = KVMEM_ORDER_FULLY_CONTIGUOUS);
    OWNED(kvmem_agent) near = agent_open("near");
    OWNED(kvmem_agent) far = agent_open("unmeasured");
    CLEANUP(kv_side_close) kv_side near_side, far_side;
    kv_side_open(&near_side, &near_config, near, 1);
    kv_side_open(&far_side, &far_config, far, 2);
    agents_introduce(near, far);
    OWNED(kvmem_layout) remote = layout_import(near, far_side.layout);
    kvmem_block_pair pairs[64];
    for (uint32_t i = 0; i < NUM(pairs); i++)
        pairs[i] = (kvmem_block_pair){i, NUM(pairs) - 1 - i};
    const kv_move all = {pairs, NUM(pairs), 0, 0, 64};
    NIXL(nixl_sim_fail_register(1));
    OWN(kvmem_transfer, direct, kv_prepare, remote, near_side.layout, KV_JOB(&all));
    CHECK_EQ(transfer_info(direct).method, KVMEM_METHOD_NIXL);
    kvmem_compared_method explanation;
    CHECK_HAS(kv_explained(direct, &explanation), "register DRAM memory");
    OWN(kvmem_transfer, staged, kv_prepare, remote, near_side.layout, KV_JOB(&all));
    CHECK_EQ(transfer_info(staged).method, KVMEM_METHOD_NIXL_STAGED);
    NIXL(nixl_sim_fail_register(1));
    REFUSE(KVMEM_STATUS_NIXL, "register DRAM memory", kv_prepare, remote, near_side.layout,
           KV_JOB(&all, it.transfer.method = KVMEM_METHOD_NIXL_STAGED, it.transfer.staging_size = 1 << 20));
    EXPECT_OK(run(direct));
}
