// SPDX-License-Identifier: Apache-2.0
// Requests on raw descriptors that stay in flight, with the stand-in for NIXL: when they end, and what can be
// done with their memory until then.
#include "prometheus.h"
#include "stand_in.h"

static unsigned char memory[8192];

typedef struct pair {
    kvmem_agent *near, *far;
    kvmem_nixl_descriptor local, remote;
    kvmem_segments *segments;
} pair;

static void pair_open(pair *pair) {
    nixl_find_stand_in();
    pair->near = agent_open("near");
    pair->far = agent_open("far");
    agents_introduce(pair->near, pair->far);
    pair->local = memory_at(memory, 4096);
    pair->remote = memory_at(memory + 4096, 4096);
    EXPECT_OK(kvmem_segments_register(pair->near, &pair->local, 1, NULL, &pair->segments, ERR));
    NIXL(nixl_sim_set_pending(1));
}

static void pair_close(pair *pair) {
    NIXL(nixl_sim_set_pending(0));
    kvmem_segments_destroy(pair->segments);
    kvmem_agent_destroy(pair->near);
    kvmem_agent_destroy(pair->far);
}

static kvmem_request *request_with(pair *pair, const kvmem_nixl_options *options) {
    return MADE(kvmem_request, kvmem_request_create, pair->near, KVMEM_REQUEST_READ, &pair->local, "far",
                &pair->remote, 1, options);
}

/* By a layout over the same memory: block 0 is the local descriptor. */
TEST(a_request_in_flight_accesses_its_local_descriptors) {
    OPENED(pair, pair);
    OWNED(kvmem_region) region = region_adopt(memory, sizeof(memory));
    const kvmem_layout_config config = OPTIONS(kvmem_layout_config, it.num_blocks = 2, it.num_layers = 1, it.outer_dim = 1,
                                               it.page_size = 1, it.inner_dim = 4096, it.dtype_width = 1, it.order = "BLONHC");
    OWN(kvmem_layout, layout, kvmem_layout_build,
        REF(OPTIONS(kvmem_layout_options, it.config = &config, it.source = KVMEM_LAYOUT_REGIONS, it.regions = &region, it.count = 1)));
    static const uint32_t operations[] = {KVMEM_REQUEST_READ, KVMEM_REQUEST_WRITE}, blocks[] = {0, 1};
    for (size_t i = 0; i < NUM(operations); i++) {
        OWN(kvmem_request, request, kvmem_request_create, pair.near, operations[i], &pair.local, "far", &pair.remote, 1,
            REF(OPTIONS(kvmem_nixl_options, it.user_data = 4)));
        NIXL(nixl_sim_set_pending(1));
        EXPECT_OK(kvmem_request_post(request, NULL, 0, ERR));
        kvmem_block_access found[2];
        GET(size_t, count, kvmem_layout_get_accesses, layout, blocks, NUM(blocks), found, NUM(found));
        CHECK_EQ(count, 1);
        CHECK(found[0].block == 0 && found[0].accessor == KVMEM_ACCESSOR_RUN && found[0].user_data == 4);
        CHECK(found[0].writes == (i == 0) && found[0].reads == (i == 1));
        NIXL(nixl_sim_set_pending(0));
        EXPECT_OK(kvmem_request_wait(request, PATIENCE, ERR));
        GET(size_t, after, kvmem_layout_get_accesses, layout, blocks, NUM(blocks), NULL, 0);
        CHECK_EQ(after, 0);
    }
}

/* Those that end within the call that posts them, and others. Two agents have one name, and not one number. */
TEST(an_agent_counts_the_runs_of_its_requests) {
    size_t series;
    {
        OPENED(pair, pair);
        OWNED(kvmem_request) request = request_with(&pair, NULL);
        EXPECT_OK(kvmem_request_post(request, NULL, 0, ERR));
        CHECK_EQ(prometheus_sum("kvmem_agent_bytes_total", "", &series), 0);
        NIXL(nixl_sim_set_pending(0));
        EXPECT_OK(kvmem_request_wait(request, PATIENCE, ERR));
        EXPECT_OK(kvmem_request_post(request, NULL, 0, ERR));
        EXPECT_OK(kvmem_request_wait(request, PATIENCE, ERR));
        CHECK_EQ(prometheus_sum("kvmem_agent_bytes_total", "direction=\"pull\"", &series), 2 * 4096);
        CHECK_EQ(series, 1);
        CHECK_EQ(prometheus_sum("kvmem_agent_runs_total", "direction=\"pull\",outcome=\"ok\"", &series), 2);
        static unsigned char other[4096];
        OWNED(kvmem_region) region = region_adopt(other, sizeof(other));
        OWN(kvmem_registration, registration, kvmem_region_register, region, pair.near);
        CHECK_EQ(prometheus_sum("kvmem_agent_registrations", "", &series), 1);
        CHECK_EQ(series, 2);
        OWNED(kvmem_agent) same = agent_open("near");
        prometheus_sum("kvmem_agent_registrations", "", &series);
        CHECK_EQ(series, 3);
        OWN(kvmem_blob, text, kvmem_statistics_text);
        CHECK_HAS(kvmem_blob_data(text), "\nkvmem_agent_bytes_total{agent=\"near\",id=\"");
    }
    prometheus_sum("kvmem_agent_registrations", "", &series);
    CHECK_EQ(series, 0);
}

/* Posts once the previous run has ended. Only the deadline of the process limits the wait. */
static void post_when_free(kvmem_request *request) {
    kvmem_status status = KVMEM_STATUS_BUSY;
    while (status == KVMEM_STATUS_BUSY) status = kvmem_request_post(request, NULL, 0, ERR);
    CHECK_EQ(status, KVMEM_STATUS_OK);
}

/* Posts until a run is in flight beyond its limit, and returns how many runs that took: a run that is late
   before NIXL is called is not posted. */
static unsigned post_late(kvmem_request *request) {
    unsigned runs = 0;
    NIXL(nixl_sim_hold(NIXL_SIM_POST));
    while (NIXL(nixl_sim_waiting()) == 0) {
        const kvmem_status status = kvmem_request_post(request, NULL, 0, NULL);
        CHECK(status == KVMEM_STATUS_OK || status == KVMEM_STATUS_BUSY);
        runs += status == KVMEM_STATUS_OK;
        sched_yield();
    }
    EXPECT_MESSAGE(KVMEM_STATUS_TIMED_OUT, "with agent 'far' was not complete after 1 ms",
                   kvmem_request_wait(request, PATIENCE, ERR));
    CHECK_HAS(test_last_message(), "timeout_ns");
    NIXL(nixl_sim_go());
    while (NIXL(nixl_sim_get_requests()).in_flight == 0) sched_yield();
    return runs;
}

/* Such a request does not keep the registration. */
TEST(memory_is_deregistered_after_the_end_of_a_request_that_does_not_name_its_region) {
    OPENED(pair, both);
    static unsigned char own[4096];
    OWNED(kvmem_region) region = region_adopt(own, sizeof(own));
    OWN(kvmem_registration, registration, kvmem_region_register, region, both.near);
    both.local = memory_at(own, sizeof(own));
    OWNED(kvmem_request) request = request_with(&both, NULL);
    EXPECT_OK(kvmem_request_post(request, NULL, 0, ERR));
    while (NIXL(nixl_sim_get_requests()).in_flight == 0) sched_yield();
    for (int i = 0; i < 2; i++)
        EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "1 request in flight", kvmem_registration_deregister(registration, ERR));
    CHECK_EQ(region_info(region).registration_count, 1);
    NIXL(nixl_sim_set_pending(0));
    EXPECT_OK(kvmem_request_wait(request, PATIENCE, ERR));
    EXPECT_OK(kvmem_registration_deregister(registration, ERR));
    CHECK_EQ(region_info(region).registration_count, 0);
}

/* Late bytes of a request would overwrite those of a run that has succeeded. */
TEST(memory_that_an_ended_run_may_still_write_gets_no_other_bytes) {
    OPENED(pair, both);
    OWNED(kvmem_request) limited =
        request_with(&both, REF(OPTIONS(kvmem_nixl_options, it.run_timeout_ns = MILLISECONDS(1))));
    OWNED(kvmem_request) other = request_with(&both, NULL);
    post_late(limited);
    EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "may still write", kvmem_request_post(other, NULL, 0, ERR));
    const kvmem_layout_config config = WITH(kv_config(&kv_kinds[0]), it.num_blocks = 1, it.num_layers = 1,
                                            it.outer_dim = 1,
                                            it.page_size = 1, it.inner_dim = 256);
    static unsigned char source[4096];
    OWNED(kvmem_region) from = region_adopt(source, sizeof(source));
    OWNED(kvmem_region) to = region_adopt(memory, 4096);
    OWNED(kvmem_layout) first = regions_lay_out(&config, &from, 1, NULL);
    OWNED(kvmem_layout) second = regions_lay_out(&config, &to, 1, NULL);
    const kv_move move = KV_MOVE(1, {0, 0});
    OWN(kvmem_transfer, copy, kv_prepare, first, second, KV_JOB(&move));
    EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "may still write", kvmem_transfer_submit(copy, NULL, ERR));
    NIXL(nixl_sim_set_pending(0));
    CHECK_EQ(submit_when_free(copy), KVMEM_STATUS_OK);
    EXPECT_OK(kvmem_transfer_wait(copy, PATIENCE, ERR));
    post_when_free(other);
    EXPECT_OK(kvmem_request_wait(other, PATIENCE, ERR));
}

TEST(a_run_that_exceeds_its_limit_ends_and_its_memory_stays_in_use) {
    OPENED(pair, both);
    OWN(kvmem_queue, queue, kvmem_queue_create);
    const kvmem_nixl_options options = OPTIONS(kvmem_nixl_options, it.run_timeout_ns = MILLISECONDS(1),
                                               it.queue = queue, it.user_data = 5,
                                               it.flags = KVMEM_NIXL_REPORT_RELEASE);
    OWNED(kvmem_request) request = request_with(&both, &options);
    for (unsigned runs = post_late(request); runs > 0; runs--) {
        const kvmem_completion completion = next_completion(queue);
        CHECK_EQ(completion.kind, KVMEM_COMPLETION_RUN_ENDED);
        CHECK_EQ(completion.status, KVMEM_STATUS_TIMED_OUT);
        CHECK_EQ(completion.user_data, 5);
        CHECK_EQ(completion.released, 0);
        if (runs > 1) expect_release(queue, 5, KVMEM_STATUS_OK);
    }
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_request_poll(request, ERR)); /* it has ended */
    CHECK_EQ(NIXL(nixl_sim_get_requests()).in_flight, 1);
    EXPECT(KVMEM_STATUS_BUSY, kvmem_request_post(request, NULL, 0, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "1 request in flight", kvmem_segments_deregister(both.segments, ERR));
    NIXL(nixl_sim_set_pending(0));
    kvmem_status next = KVMEM_STATUS_TIMED_OUT;
    while (next == KVMEM_STATUS_TIMED_OUT) { /* the next runs, too, have 1 ms */
        expect_release(queue, 5, KVMEM_STATUS_OK);
        EXPECT_OK(kvmem_request_post(request, NULL, 0, ERR));
        const kvmem_completion completion = next_completion(queue);
        next = kvmem_request_poll(request, ERR);
        CHECK_EQ(completion.status, next);
        CHECK_EQ(completion.released, next == KVMEM_STATUS_OK);
    }
    CHECK_EQ(next, KVMEM_STATUS_OK);
    EXPECT_OK(kvmem_segments_deregister(both.segments, ERR));
}

/* The posting thread does not call NIXL, either. A run that is not posted in time is not posted at all. */
TEST(runs_end_at_their_limit_though_nixl_does_not_return) {
    OPENED(pair, both);
    NIXL(nixl_sim_set_pending(0));
    const kvmem_nixl_options options = OPTIONS(kvmem_nixl_options, it.run_timeout_ns = SECONDS(1));
    OWNED(kvmem_request) first = request_with(&both, &options);
    OWNED(kvmem_request) second = request_with(&both, &options);
    const uint64_t posts = NIXL(nixl_sim_get_requests()).posts;
    NIXL(nixl_sim_hold(NIXL_SIM_POST));
    EXPECT_OK(kvmem_request_post(first, NULL, 0, ERR));
    EXPECT_OK(kvmem_request_post(second, NULL, 0, ERR));
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_request_wait(first, KVMEM_TIMEOUT_FOREVER, ERR));
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_request_wait(second, KVMEM_TIMEOUT_FOREVER, ERR));
    NIXL(nixl_sim_go());
    post_when_free(first);
    EXPECT_OK(kvmem_request_wait(first, PATIENCE, ERR));
    post_when_free(second);
    EXPECT_OK(kvmem_request_wait(second, PATIENCE, ERR));
    CHECK_EQ(NIXL(nixl_sim_get_requests()).posts, posts + 3);
}

/* The peer would take it for a request to kvmem, and drop it. */
TEST(a_notification_of_a_run_cannot_begin_as_requests_of_kvmem_do) {
    OPENED(pair, both);
    NIXL(nixl_sim_set_pending(0));
    OWNED(kvmem_request) request = request_with(&both, NULL);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "begin with other bytes",
                   kvmem_request_post(request, "KVMEMSRV.", 9, ERR));
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_request_poll(request, ERR)); /* nothing was posted */
    EXPECT_OK(kvmem_request_post(request, "KVMEMSR", 7, ERR));
    EXPECT_OK(kvmem_request_wait(request, PATIENCE, ERR));
}

/* Unless the agent's thread owns the agent at that moment, which is a race. */
TEST(the_thread_that_posts_calls_nixl_and_the_run_has_ended_then) {
    OPENED(pair, both);
    NIXL(nixl_sim_set_pending(0));
    OWN(kvmem_queue, queue, kvmem_queue_create);
    const kvmem_nixl_options options = OPTIONS(kvmem_nixl_options, it.queue = queue, it.user_data = 5);
    OWNED(kvmem_request) request = request_with(&both, &options);
    do {
        post_when_free(request);
        const kvmem_completion completion = next_completion(queue);
        CHECK_EQ(completion.status, KVMEM_STATUS_OK);
        CHECK_EQ(completion.user_data, 5);
        CHECK_EQ(completion.bytes, 4096);
    } while (NIXL(nixl_sim_get_requests()).last_poster != gettid());
    EXPECT_OK(kvmem_request_poll(request, ERR));
}

TEST(a_request_that_is_not_posted_fails_and_is_released) {
    OPENED(pair, both);
    OWN(kvmem_queue, queue, kvmem_queue_create);
    const kvmem_nixl_options options = OPTIONS(kvmem_nixl_options, it.queue = queue);
    for (int i = 0; i < 100; i++) {
        OWNED(kvmem_request) request = request_with(&both, &options);
        NIXL(nixl_sim_fail_post(1));
        EXPECT_OK(kvmem_request_post(request, NULL, 0, ERR));
        EXPECT_MESSAGE(KVMEM_STATUS_NIXL, "with agent 'far'", kvmem_request_wait(request, PATIENCE, ERR));
        CHECK_EQ(next_completion(queue).status, KVMEM_STATUS_NIXL);
        CHECK_EQ(NIXL(nixl_sim_get_requests()).alive, 0);
        kvmem_status status = KVMEM_STATUS_BUSY; /* until the run has ended everywhere */
        while (status == KVMEM_STATUS_BUSY) status = kvmem_request_post(request, NULL, 0, ERR);
        CHECK_EQ(status, KVMEM_STATUS_INVALID_STATE);
    }
}

TEST(a_request_in_flight_ends_after_its_peer_was_invalidated) {
    OPENED(pair, both);
    OWNED(kvmem_request) request = request_with(&both, NULL);
    NIXL(nixl_sim_set_pending(1));
    post_when_free(request);
    while (NIXL(nixl_sim_get_requests()).in_flight == 0) sched_yield();
    EXPECT(KVMEM_STATUS_BUSY, kvmem_request_post(request, NULL, 0, ERR));
    EXPECT_OK(kvmem_agent_invalidate_remote_metadata(both.near, "far", NULL, ERR));
    EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_request_poll(request, ERR));
    NIXL(nixl_sim_set_pending(0));
    EXPECT_OK(kvmem_request_wait(request, PATIENCE, ERR));
    for (int i = 0; i < 2; i++) EXPECT(KVMEM_STATUS_STALE, kvmem_request_post(request, NULL, 0, ERR));
    while (NIXL(nixl_sim_get_requests()).alive > 0) sched_yield();
}

typedef struct poster {
    kvmem_request *request;
    uint64_t runs;
    kvmem_status end;
} poster;

/* Posts again and again, until the post fails for another reason than the run of another thread. */
static void *post_on(void *argument) {
    poster *mine = argument;
    do {
        mine->end = kvmem_request_post(mine->request, NULL, 0, NULL);
        mine->runs += mine->end == KVMEM_STATUS_OK;
    } while (mine->end == KVMEM_STATUS_OK || mine->end == KVMEM_STATUS_BUSY);
    return NULL;
}

/* Two threads post one request, a third one another, and the peer is invalidated meanwhile: each run that has
   begun succeeds and is reported once. */
TEST(threads_post_until_the_peer_is_invalidated) {
    OPENED(pair, both);
    OWN(kvmem_queue, queue, kvmem_queue_create);
    const kvmem_nixl_options options = OPTIONS(kvmem_nixl_options, it.queue = queue);
    for (int round = 0; round < 20; round++) {
        if (round > 0) agents_introduce(both.near, both.far);
        OWNED(kvmem_request) shared = request_with(&both, &options);
        OWNED(kvmem_request) other = request_with(&both, &options);
        poster posters[] = {{.request = shared}, {.request = shared}, {.request = other}};
        pthread_t threads[NUM(posters)];
        NIXL(nixl_sim_set_pending(0));
        /* The shared request has a run whichever thread posts first below. */
        EXPECT_OK(kvmem_request_post(shared, NULL, 0, ERR));
        CHECK_EQ(next_completion(queue).status, KVMEM_STATUS_OK);
        for (size_t i = 0; i < NUM(posters); i++) {
            CHECK_EQ(pthread_create(&threads[i], NULL, post_on, &posters[i]), 0);
        }
        CHECK_EQ(next_completion(queue).status, KVMEM_STATUS_OK);
        NIXL(nixl_sim_set_pending(1));
        EXPECT_OK(kvmem_agent_invalidate_remote_metadata(both.near, "far", NULL, ERR));
        NIXL(nixl_sim_set_pending(0));
        uint64_t completed = 2, runs = 1;
        for (size_t i = 0; i < NUM(posters); i++) {
            CHECK_EQ(pthread_join(threads[i], NULL), 0);
            CHECK_EQ(posters[i].end, KVMEM_STATUS_STALE);
            runs += posters[i].runs;
        }
        for (; completed < runs; completed++) CHECK_EQ(next_completion(queue).status, KVMEM_STATUS_OK);
        kvmem_completion none;
        size_t count = 0;
        EXPECT_OK(kvmem_queue_wait(queue, 0, &none, 1, &count, ERR));
        CHECK_EQ(count, 0);
        while (NIXL(nixl_sim_get_requests()).alive > 0) sched_yield();
        EXPECT(KVMEM_STATUS_OK, kvmem_request_poll(shared, ERR));
    }
}

/* A wait that times out does not end the run. */
TEST(a_wait_that_times_out_ends_no_run) {
    OPENED(pair, both);
    OWNED(kvmem_request) request = request_with(&both, NULL);
    EXPECT_OK(kvmem_request_post(request, NULL, 0, ERR));
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_request_wait(request, MILLISECONDS(5), ERR));
    EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_request_poll(request, ERR));
    NIXL(nixl_sim_set_pending(0));
    EXPECT_OK(kvmem_request_wait(request, PATIENCE, ERR));
}

TEST(a_late_run_that_fails_makes_its_request_unusable) {
    OPENED(pair, both);
    const kvmem_nixl_options options = OPTIONS(kvmem_nixl_options, it.run_timeout_ns = MILLISECONDS(1));
    OWNED(kvmem_request) request = request_with(&both, &options);
    post_late(request);
    NIXL(nixl_sim_fail_status(1));
    kvmem_status status = KVMEM_STATUS_BUSY;
    while (status == KVMEM_STATUS_BUSY) status = kvmem_request_post(request, NULL, 0, ERR);
    CHECK_EQ(status, KVMEM_STATUS_INVALID_STATE);
    CHECK_EQ(NIXL(nixl_sim_get_requests()).alive, 0);
}

/* The handle is destroyed before the end: the request is released when NIXL has completed it. */
TEST(a_late_run_of_a_destroyed_request_is_released_at_its_end) {
    OPENED(pair, both);
    const kvmem_nixl_options options = OPTIONS(kvmem_nixl_options, it.run_timeout_ns = MILLISECONDS(1));
    kvmem_request *request = request_with(&both, &options);
    post_late(request);
    kvmem_request_destroy(request);
    CHECK_EQ(NIXL(nixl_sim_get_requests()).alive, 1);
    NIXL(nixl_sim_set_pending(0));
    while (NIXL(nixl_sim_get_requests()).alive > 0) sched_yield();
}

enum { MANY_NAMES = 1 << 20, NAME = 12 };

/* Each is compared with all others by one look-up: otherwise this takes hours. */
TEST(many_backends_are_compared_at_once) {
    OPENED(pair, pair);
    CLEANUP(test_free) char *bytes = test_allocate((size_t)MANY_NAMES * NAME);
    CLEANUP(test_free) const char **names = test_allocate(MANY_NAMES * sizeof(*names));
    for (size_t i = 0; i < MANY_NAMES; i++) {
        snprintf(bytes + i * NAME, NAME, "PLUG%07zu", i);
        names[i] = bytes + i * NAME;
    }
    kvmem_nixl_options options = OPTIONS(kvmem_nixl_options, it.backends = names,
                                         it.backend_count = MANY_NAMES);
    REFUSE(KVMEM_STATUS_NOT_FOUND, "PLUG0000000", kvmem_request_create, pair.near, KVMEM_REQUEST_READ,
           &pair.local, "far", &pair.remote, 1, &options);
    names[MANY_NAMES - 1] = names[0];
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "backends has 'PLUG0000000' twice", kvmem_request_create, pair.near,
           KVMEM_REQUEST_READ, &pair.local, "far", &pair.remote, 1, &options);
}
