// SPDX-License-Identifier: Apache-2.0
// Transfers whose requests fail, stay in flight, or lose their peer, with the stand-in for NIXL: when a run
// ends, which requests NIXL still has then, and what can be done with the peer meanwhile.
#include "two_agents.h"

KV_PEER_ROLE

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
    remote_pair->transfer = create(remote_pair->peer.model.layout, remote_pair->side.layout,
                                   config.num_blocks,
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
    EXPECT_OK(kvmem_agent_invalidate_remote_metadata(remote_pair.near, "victim", NULL, ERR));
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
    EXPECT_MESSAGE(KVMEM_STATUS_PEER_LOST, "victim",
                   kvmem_transfer_wait(remote_pair.transfer, PATIENCE, ERR));
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
    mine->status = kvmem_agent_invalidate_remote_metadata(mine->agent, "far", NULL, &error);
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

/* While the agent is between two requests, NIXL has no request of the transfer. The second one exists
   already. */
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
    EXPECT_OK(kvmem_agent_invalidate_remote_metadata(pair.near, "far", NULL, ERR));
    NIXL(nixl_sim_set_pending(0));
    EXPECT_OK(kvmem_transfer_wait(pair.transfer, PATIENCE, ERR));
    EXPECT(KVMEM_STATUS_STALE, kvmem_transfer_submit(pair.transfer, NULL, ERR));
    AWAIT(requests().alive == 0);
    pair_close(&pair);
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
    EXPECT_OK(kvmem_agent_invalidate_remote_metadata(pair.near, "far", NULL, ERR));
    EXPECT(KVMEM_STATUS_NOT_FOUND, kvmem_agent_check_remote_metadata(pair.near, "far", ERR));
    EXPECT(KVMEM_STATUS_NOT_FOUND, kvmem_agent_invalidate_remote_metadata(pair.near, "far", NULL, ERR));
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

/* The only access to a block, by a run that has ended. */
static void expect_ended_run(const kvmem_layout *layout, uint32_t block, uint32_t accessor, bool writes) {
    kvmem_block_access found;
    GET(size_t, count, kvmem_layout_get_accesses, layout, &block, 1, &found, 1);
    CHECK_EQ(count, 1);
    CHECK(found.accessor == accessor && found.writes == writes && found.reads == !writes);
}

/* The blocks of the peer that a run may still write get no others. */
TEST(a_peer_gets_no_bytes_that_an_ended_run_may_overwrite) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    const kv_move first = KV_MOVE(3, {0, 1}), second = KV_MOVE(3, {0, 2});
    OPENED(pair, pair, &config);
    NIXL(nixl_sim_set_pending(NIXL_SIM_PENDING_ALL));
    OWN(kvmem_transfer, limited, kv_prepare, pair.local, pair.remote,
        KV_JOB(&first, it.transfer.method = KVMEM_METHOD_NIXL, it.run.run_timeout_ns = MILLISECONDS(100)));
    run_late(limited);
    expect_ended_run(pair.local, 0, KVMEM_ACCESSOR_ENDED_RUN, false);
    expect_ended_run(pair.remote, 1, KVMEM_ACCESSOR_ENDED_RUN, true);
    OPENED(kv_side, other, &config, pair.near, 10);
    OWN(kvmem_transfer, same, kv_prepare, other.layout, pair.remote, KV_JOB(&first));
    OWN(kvmem_transfer, apart, kv_prepare, other.layout, pair.remote, KV_JOB(&second));
    EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "may still write to the destination",
                   kvmem_transfer_submit(same, NULL, ERR));
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
    OWNED(kvmem_transfer) limited = create_limited(&pair, &config, KVMEM_METHOD_NIXL, true,
                                                   MILLISECONDS(100));
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
        REFUSE(KVMEM_STATUS_ALREADY_EXISTS, "'far' is loaded already", kvmem_agent_load_remote_metadata,
               pair.near,
               metadata.data, metadata.size);
        EXPECT_OK(kvmem_agent_invalidate_remote_metadata(pair.near, "far", NULL, ERR));
        agent_load(pair.near, &metadata);
        agent_load(pair.near, &metadata); /* the same again */
        EXPECT_OK(kvmem_agent_check_remote_metadata(pair.near, "far", ERR));
        EXPECT_OK(kvmem_agent_notify(pair.near, "far", "x", 1, ERR));
        EXPECT_OK(kvmem_agent_connect(pair.near, "far", NULL, KVMEM_TIMEOUT_FOREVER, ERR));
        OWNED(kvmem_layout) remote = NULL;
        EXPECT_OK(kvmem_layout_import(pair.near, descriptor.data, descriptor.size, &remote, ERR));
        OWNED(kvmem_transfer) next = create(remote, destinations[generation], config.num_blocks,
                                            config.num_layers);
        EXPECT_OK(kvmem_transfer_submit(next, NULL, ERR));
        AWAIT(requests().in_flight == 2 + generation);
        EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(next, ERR));
    }
    CHECK_EQ(requests().in_flight, 4);
    NIXL(nixl_sim_set_pending(0));
    AWAIT(requests().in_flight == 0);
    EXPECT(KVMEM_STATUS_STALE, kvmem_transfer_submit(pair.transfer, NULL, ERR));
    EXPECT_OK(kvmem_agent_invalidate_remote_metadata(pair.near, "far", NULL, ERR));
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

/* More writes than there are threads for verification. Each reads its blocks back. All of these reads begin,
   and other transfers are verified meanwhile. */
TEST(a_peer_that_does_not_respond_delays_no_other_verification) {
    kvmem_transfer *writes[20];
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OPENED(pair, pair, &config);
    KV_SIDES(from, to, config, config);
    const kv_move move = KV_MOVE(3, {6, 0}, {0, 5});
    const kv_job verified = WITH(kv_job_of(&move), it.run.flags = KVMEM_SUBMIT_VERIFY);
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
    RUN_ENDS(KVMEM_STATUS_TIMED_OUT, "with agent 'far': nothing was moved for 10 ms", impatient);
    NIXL(nixl_sim_set_pending(NIXL_SIM_PENDING_NONE));
    for (size_t i = 0; i < NUM(writes); i++) {
        EXPECT_OK(kvmem_transfer_wait(writes[i], PATIENCE, ERR));
        kvmem_transfer_destroy(writes[i]);
    }
    NIXL(nixl_sim_set_moving(0));
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
    AWAIT(requests().alive == 0); /* those of earlier cases are released later, and are not to fail */
    pair pair;
    pair_open(&pair, &config);
    const uint64_t address = region_info(pair.region).address;
    NIXL(nixl_sim_fail_post(1));
    NIXL(nixl_sim_fail_release(1));
    EXPECT(KVMEM_STATUS_NIXL, run(pair.transfer));
    EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "can't be detected", run(pair.transfer)); /* NIXL may still write */
    const uint32_t blocks[] = {0, 1, 2, 3, 4, 5, 6};
    kvmem_block_access lost[NUM(blocks)];
    GET(size_t, count, kvmem_layout_get_accesses, pair.local, blocks, NUM(blocks), lost, NUM(lost));
    CHECK(count > 0 && count <= NUM(lost));
    for (size_t i = 0; i < count; i++) CHECK(lost[i].accessor == KVMEM_ACCESSOR_LOST_RUN && lost[i].writes == 1);
    CHECK_EQ(requests().reposts, 0);
    const int releases = releases_count();
    OWN(kvmem_region, again, kvmem_layout_get_region, pair.local, 0);
    pair_destroy_handles(&pair);
    GET(kvmem_region_holders, holders, kvmem_region_get_holders, again);
    CHECK(holders.references > 1 && holders.handles == 1); /* what is leaked keeps it */
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
