// SPDX-License-Identifier: Apache-2.0
// Transfers that the owner of a layout serves: which are chosen, every byte, several requesters, limits, and how they end if
// either side dies, stalls, destroys what it has, or sends nonsense. served_tcp_test.c: the same over TCP.
#include "harness.h"

#ifndef OVER_TCP
#define OVER_TCP 0
#endif

KV_PEER_ROLE

#define NUM_BLOCKS 500
#define SMALL_ARENA (8 * 4096)

/* Pieces of 512 bytes, which are 3000 in all. */
static kvmem_layout_config config_of(const kv_kind *kind) {
    return WITH(kv_config(kind), it.num_blocks = NUM_BLOCKS, it.inner_dim = 64);
}

/* All blocks but some, in the opposite order. */
static kvmem_block_pair backwards[NUM_BLOCKS - 7];
static const kv_move all_layers = {backwards, NUM(backwards), 0, 0, 3};
static const kv_outers values = {1, 1, 1};

#define SERVED(direction) SERVED_WITH(direction, (void)0)
#define SERVED_WITH(direction, ...)                                                                  \
    KV_OPTIONS(&all_layers, it.path = KVMEM_PATH_NIXL_##direction##_SERVED, __VA_ARGS__)

typedef kv_meeting fixture;
#define fixture_close kv_meeting_close

static void open_kinds(fixture *fixture, const kv_kind *here, const kv_kind *there, const char *name,
                       const kvmem_serve_options *serve) {
    for (uint32_t i = 0; i < NUM(backwards); i++) backwards[i] = (kvmem_block_pair){i, NUM_BLOCKS - 1 - i};
    kv_meeting_open_served(fixture, "near", name, REF(config_of(here)), REF(config_of(there)), serve);
}

static void open_with(fixture *fixture, const kvmem_serve_options *serve) {
    open_kinds(fixture, &kv_kinds[1], &kv_kinds[0], "far", serve);
}

/* Many chunks of a page, in both directions. */
static void fixture_open(fixture *fixture) {
    open_with(fixture, REF(OPTIONS(kvmem_serve_options, it.flags = KVMEM_SERVE_WRITE,
                                   it.arena_size = SMALL_ARENA)));
}

static void move_both_ways(fixture *fixture) {
    const kvmem_layout *near = fixture->side.layout, *far = fixture->peer.model.layout;
    const kvmem_transfer_info info = kv_run_with(far, near, SERVED(READ));
    CHECK_EQ(info.path, KVMEM_PATH_NIXL_READ_SERVED);
    kv_side_check_moved(&fixture->side, &fixture->peer.model, &all_layers);
    CHECK_EQ(kv_run_with(near, far, SERVED(WRITE)).path, KVMEM_PATH_NIXL_WRITE_SERVED);
    kv_expect_moved(&fixture->peer.model, &fixture->side, &all_layers);
    kv_peer_check(&fixture->peer);
}

TEST(every_byte_moves_between_all_kinds) {
    for (size_t here = 0; here < KV_NUM_KINDS; here++) {
        fixture fixture;
        open_kinds(&fixture, &kv_kinds[here], &kv_kinds[(here + 1) % KV_NUM_KINDS], "far",
                   REF(OPTIONS(kvmem_serve_options, it.flags = KVMEM_SERVE_WRITE, it.arena_size = SMALL_ARENA)));
        move_both_ways(&fixture);
        fixture_close(&fixture);
    }
}

TEST(slots_of_the_default_size_hold_the_whole_transfer) {
    fixture fixture;
    open_with(&fixture, REF(OPTIONS(kvmem_serve_options, it.flags = KVMEM_SERVE_WRITE)));
    move_both_ways(&fixture);
    fixture_close(&fixture);
}

/* Values alone are not contiguous on either side. Nothing between them is read, or written. */
TEST(nothing_is_read_in_excess) {
    OPENED(fixture, fixture);
    const kvmem_layout *near = fixture.side.layout, *far = fixture.peer.model.layout;
    kvmem_transfer_options options = kv_outers_options(&all_layers, values);
    options.path = KVMEM_PATH_NIXL_READ_SERVED;
    OWN(kvmem_transfer, read, kvmem_transfer_create, far, near, &options);
    kvmem_transfer_explanation explained;
    OWNED(kvmem_blob) text = NULL;
    EXPECT_OK(kvmem_transfer_explain(read, &explained, &text, ERR));
    CHECK_EQ(explained.path, KVMEM_PATH_NIXL_READ_SERVED);
    CHECK_HAS(kvmem_blob_data(text), "bytes read in excess: 0");
    CHECK_HAS(kvmem_blob_data(text), "NIXL read, served");
    CHECK_HAS(kvmem_blob_data(text), "NIXL read, staged");
    RUN(read);
    kv_expect_outers_moved(&fixture.side, &fixture.peer.model, &all_layers, values);
    kv_side_check(&fixture.side);
    options.path = KVMEM_PATH_NIXL_WRITE_SERVED;
    kv_run_with(near, far, &options);
    kv_expect_outers_moved(&fixture.peer.model, &fixture.side, &all_layers, values);
    kv_peer_check(&fixture.peer);
}

/* Of each piece half is moved. A read of it by this side would discard as much, and a write would need a range for each row.
   Costs are measured per peer: nothing was moved to or from this one before. */
TEST(what_costs_less_is_served) {
    fixture fixture;
    open_kinds(&fixture, &kv_kinds[1], &kv_kinds[0], "new",
               REF(OPTIONS(kvmem_serve_options, it.flags = KVMEM_SERVE_WRITE)));
    const kvmem_layout *near = fixture.side.layout, *far = fixture.peer.model.layout;
    const kvmem_transfer_options options = kv_outers_options(&all_layers, values);
    CHECK_EQ(kv_run_with(near, far, &options).path, KVMEM_PATH_NIXL_WRITE_SERVED);
    kv_expect_outers_moved(&fixture.peer.model, &fixture.side, &all_layers, values);
    kv_peer_check(&fixture.peer);
    fixture_close(&fixture);
}

TEST(an_owner_that_does_not_serve_is_read_and_written_by_this_side_alone) {
    fixture fixture;
    open_kinds(&fixture, &kv_kinds[1], &kv_kinds[0], "silent", NULL);
    const kvmem_layout *near = fixture.side.layout, *far = fixture.peer.model.layout;
    OWN(kvmem_transfer, read, kvmem_transfer_create, far, near, KV_OPTIONS(&all_layers));
    kvmem_transfer_explanation explained;
    OWNED(kvmem_blob) text = NULL;
    EXPECT_OK(kvmem_transfer_explain(read, &explained, &text, ERR));
    CHECK_EQ(explained.path, KVMEM_PATH_NIXL_READ_STAGED);
    CHECK_HAS(kvmem_blob_data(text), "the owner does not serve the layout (kvmem_layout_serve)");
    RUN(read);
    kv_side_check_moved(&fixture.side, &fixture.peer.model, &all_layers);
    kvmem_transfer *transfer = NULL;
    EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "the owner does not serve the layout",
                   kvmem_transfer_create(far, near, SERVED(READ), &transfer, ERR));
    fixture_close(&fixture);
}

TEST(an_owner_that_serves_reads_only_is_not_written_to) {
    fixture fixture;
    open_with(&fixture, REF(OPTIONS(kvmem_serve_options, it.arena_size = SMALL_ARENA)));
    const kvmem_layout *near = fixture.side.layout, *far = fixture.peer.model.layout;
    kvmem_transfer *transfer = NULL;
    EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "the owner serves reads of the layout, and no writes",
                   kvmem_transfer_create(near, far, SERVED(WRITE), &transfer, ERR));
    kv_run_with(far, near, SERVED(READ));
    kv_side_check_moved(&fixture.side, &fixture.peer.model, &all_layers);
    fixture_close(&fixture);
}

TEST(layers_are_served_one_by_one_and_the_peer_is_notified) {
    OPENED(fixture, fixture);
    const kvmem_layout *near = fixture.side.layout, *far = fixture.peer.model.layout;
    OWN(kvmem_transfer, read, kvmem_transfer_create, far, near,
        SERVED_WITH(READ, it.flags = KVMEM_TRANSFER_BY_LAYER, it.notification = "read", it.notification_size = 4));
    RUN(read);
    GET(uint64_t, layers, kvmem_transfer_get_layers, read);
    CHECK_EQ(layers, 3);
    kv_side_check_moved(&fixture.side, &fixture.peer.model, &all_layers);
    /* The only one that the caller gets: requests are not mixed with messages. */
    kv_peer_expect_notification(&fixture.peer, "near", "read", 4);
}

TEST(transfers_that_share_an_owner_all_end) {
    OPENED(fixture, fixture);
    kvmem_transfer *reads[14]; /* more than sessions, and than requests that may wait with slots taken */
    const kvmem_layout *near = fixture.side.layout, *far = fixture.peer.model.layout;
    for (size_t i = 0; i < NUM(reads); i++) { /* to the same bytes, from the same bytes */
        EXPECT_OK(kvmem_transfer_create(far, near, SERVED(READ), &reads[i], ERR));
    }
    for (size_t i = 0; i < NUM(reads); i++) EXPECT_OK(kvmem_transfer_submit(reads[i], ERR));
    for (size_t i = 0; i < NUM(reads); i++) {
        EXPECT_OK(kvmem_transfer_wait(reads[i], PATIENCE, ERR));
        kvmem_transfer_destroy(reads[i]);
    }
    kv_side_check_moved(&fixture.side, &fixture.peer.model, &all_layers);
}

typedef struct stream {
    kvmem_transfer *transfer;
    atomic_uint rounds;
    atomic_bool stops;
    kvmem_status last; /* read after the join */
} stream;

static void *stream_until_it_fails(void *argument) {
    stream *stream = argument;
    stream->last = KVMEM_STATUS_OK;
    while (stream->last == KVMEM_STATUS_OK && !stream->stops) {
        stream->last = kvmem_transfer_submit(stream->transfer, NULL);
        if (stream->last == KVMEM_STATUS_OK)
            stream->last = kvmem_transfer_wait(stream->transfer, PATIENCE, NULL);
        stream->rounds++;
    }
    return NULL;
}

/* Two agents read from one owner at a time. */
TEST(two_requesters_are_served_at_once) {
    OPENED(fixture, fixture);
    kvmem_agent *other = agent_open("other");
    kv_side side;
    kv_side_open(&side, REF(config_of(&kv_kinds[2])), other, 5);
    agent_load(other, &fixture.peer.metadata);
    GET(kvmem_layout *, far, kvmem_layout_import, other, fixture.peer.descriptor.data,
        fixture.peer.descriptor.size);
    stream streams[2] = {{0}, {0}};
    EXPECT_OK(kvmem_transfer_create(fixture.peer.model.layout, fixture.side.layout, SERVED(READ),
                                    &streams[0].transfer, ERR));
    EXPECT_OK(kvmem_transfer_create(far, side.layout, SERVED(READ), &streams[1].transfer, ERR));
    pthread_t threads[NUM(streams)];
    for (size_t i = 0; i < NUM(streams); i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, stream_until_it_fails, &streams[i]), 0);
    while (streams[0].rounds < 5 || streams[1].rounds < 5) sched_yield();
    for (size_t i = 0; i < NUM(streams); i++) {
        streams[i].stops = true;
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
        CHECK_EQ(streams[i].last, KVMEM_STATUS_OK);
        kvmem_transfer_destroy(streams[i].transfer);
    }
    kv_side_check_moved(&fixture.side, &fixture.peer.model, &all_layers);
    kv_side_check_moved(&side, &fixture.peer.model, &all_layers);
    kvmem_layout_destroy(far);
    kv_side_close(&side);
    kvmem_agent_destroy(other);
}

TEST(a_cancelled_transfer_ends_and_runs_again) {
    OPENED(fixture, fixture);
    OWN(kvmem_transfer, read, kvmem_transfer_create, fixture.peer.model.layout, fixture.side.layout, SERVED(READ));
    kvmem_status status = KVMEM_STATUS_OK;
    while (status == KVMEM_STATUS_OK) { /* the deadline of the process bounds it */
        EXPECT_OK(kvmem_transfer_submit(read, ERR));
        EXPECT_OK(kvmem_transfer_cancel(read, ERR));
        status = kvmem_transfer_wait(read, PATIENCE, ERR);
    }
    CHECK_EQ(status, KVMEM_STATUS_CANCELLED);
    RUN(read);
    kv_side_check_moved(&fixture.side, &fixture.peer.model, &all_layers);
}

TEST(a_transfer_with_an_invalidated_peer_is_stale) {
    OPENED(fixture, fixture);
    OWN(kvmem_transfer, read, kvmem_transfer_create, fixture.peer.model.layout, fixture.side.layout, SERVED(READ));
    RUN(read);
    kv_side_check_moved(&fixture.side, &fixture.peer.model, &all_layers);
    EXPECT_OK(kvmem_agent_invalidate_remote_metadata(fixture.agent, "far", ERR));
    EXPECT(KVMEM_STATUS_STALE, kvmem_transfer_submit(read, ERR));
}

/* The owner dies wherever it is just then: a session may be opened, gathered for, read from or closed. */
TEST(an_owner_that_is_killed_in_the_middle_is_lost) {
    for (unsigned rounds = 0; rounds < 4; rounds += 2) {
        OPENED(fixture, fixture);
        const kvmem_layout *near = fixture.side.layout, *far = fixture.peer.model.layout;
        stream streams[2] = {{0}, {0}};
        EXPECT_OK(kvmem_transfer_create(far, near, SERVED(READ), &streams[0].transfer, ERR));
        EXPECT_OK(kvmem_transfer_create(near, far, SERVED(WRITE), &streams[1].transfer, ERR));
        pthread_t threads[NUM(streams)];
        for (size_t i = 0; i < NUM(streams); i++)
            CHECK_EQ(pthread_create(&threads[i], NULL, stream_until_it_fails, &streams[i]), 0);
        while (streams[0].rounds < rounds || streams[1].rounds < rounds) sched_yield();
        kv_peer_crash(&fixture.peer);
        for (size_t i = 0; i < NUM(streams); i++) {
            CHECK_EQ(pthread_join(threads[i], NULL), 0);
            CHECK_EQ(streams[i].last, KVMEM_STATUS_PEER_LOST);
            kvmem_transfer_destroy(streams[i].transfer);
        }
        memcpy(fixture.side.expected, fixture.side.memory, fixture.side.size); /* whatever was read in time */
    }
}

TEST(an_owner_that_answers_no_more_ends_a_run_in_time) {
    OPENED(fixture, fixture);
    const kvmem_layout *near = fixture.side.layout, *far = fixture.peer.model.layout;
    OWN(kvmem_transfer, stalled, kvmem_transfer_create, far, near,
        SERVED_WITH(READ, it.stall_timeout_ns = MILLISECONDS(50)));
    peer_freeze(&fixture.peer.process);
    EXPECT_OK(kvmem_transfer_submit(stalled, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_TIMED_OUT, "nothing was moved to or from agent 'far' for 50 ms",
                   kvmem_transfer_wait(stalled, PATIENCE, ERR));
    peer_thaw(&fixture.peer.process);
    kv_run_with(far, near, SERVED(READ)); /* the owner finds both requests, and that the first was closed */
    kv_side_check_moved(&fixture.side, &fixture.peer.model, &all_layers);
}

/* A process that reads from this one again and again. */
enum { MEET = 1, ROUND };

static void requester_role(int socket) {
    CLEANUP(message_free) message name = frame_expect(socket, MEET);
    CLEANUP(message_free) message metadata = frame_expect(socket, MEET);
    CLEANUP(message_free) message descriptor = frame_expect(socket, MEET);
    kvmem_agent *agent = agent_open((const char *)name.data);
    kv_side side;
    kv_side_open(&side, REF(config_of(&kv_kinds[1])), agent, 3);
    agent_load(agent, &metadata);
    OWN(kvmem_layout, far, kvmem_layout_import, agent, descriptor.data, descriptor.size);
    for (uint32_t i = 0; i < NUM(backwards); i++) backwards[i] = (kvmem_block_pair){i, NUM_BLOCKS - 1 - i};
    OWN(kvmem_transfer, read, kvmem_transfer_create, far, side.layout, SERVED(READ));
    for (;;) { /* until it is killed */
        RUN(read);
        frame_send(socket, ROUND, NULL, 0);
    }
}

USES_ROLE(requester, requester_role)

static void expect_round(const peer *requester) { frame_await(requester->socket, ROUND); }

TEST(requesters_that_are_killed_or_frozen_do_not_stall_the_owner) {
    kvmem_agent *agent = agent_open("owner");
    kv_side side;
    kv_side_open(&side, REF(config_of(&kv_kinds[0])), agent, 7);
    EXPECT_OK(kvmem_layout_serve(side.layout,
                                 REF(OPTIONS(kvmem_serve_options, it.arena_size = SMALL_ARENA,
                                             it.stall_timeout_ns = MILLISECONDS(3000))),
                                 ERR));
    CLEANUP(message_free) message metadata = agent_metadata(agent);
    CLEANUP(message_free) message descriptor = layout_descriptor(side.layout);
    static const char *const names[] = {"one", "two", "three"};
    peer requesters[NUM(names)];
    for (size_t i = 0; i < NUM(names); i++) {
        requesters[i] = peer_start("requester");
        frame_send(requesters[i].socket, MEET, names[i], strlen(names[i]) + 1);
        frame_send(requesters[i].socket, MEET, metadata.data, metadata.size);
        frame_send(requesters[i].socket, MEET, descriptor.data, descriptor.size);
    }
    for (size_t i = 0; i < NUM(names); i++) expect_round(&requesters[i]);
    peer_kill(&requesters[0]);
    peer_freeze(&requesters[1]); /* wherever it is, with the slots that it has */
    for (int round = 0; round < 8; round++) expect_round(&requesters[2]);
    peer_kill(&requesters[1]);
    peer_kill(&requesters[2]);
    kv_side_check(&side);
    kv_side_close(&side);
    kvmem_agent_destroy(agent);
}

int main(int argc, char **argv) {
    /* Set before NIXL is loaded; peers inherit it. */
    if (OVER_TCP) setenv("UCX_TLS", "tcp,self", 1);
    return test_main(argc, argv, test_registered());
}
