// SPDX-License-Identifier: Apache-2.0
// Transfers that the owner of a layout serves: when they are selected, every byte, several requesters,
// limits, and how they end if either side dies, stalls, destroys its objects or sends invalid messages.
// served_tcp_test.c runs the same over TCP.
#include "arena.h"

#include <fcntl.h>
#include <sched.h>

#ifndef OVER_TCP
#define OVER_TCP 0
#endif

KV_PEER_ROLE

#define SERVED() SERVED_WITH((void)0)
#define SERVED_WITH(...) KV_JOB(&all_layers, it.transfer.method = KVMEM_METHOD_NIXL_SERVED, __VA_ARGS__)

typedef kv_meeting fixture;
#define fixture_close kv_meeting_close

static void open_with(fixture *fixture, const kvmem_serve_options *serve) {
    arena_open(fixture, &kv_kinds[1], &kv_kinds[0], "far", serve);
}

/* Many chunks of one page, in both directions. */
static void fixture_open(fixture *fixture) {
    open_with(fixture, REF(OPTIONS(kvmem_serve_options, it.flags = KVMEM_SERVE_WRITE,
                                   it.staging_size = SMALL_ARENA)));
}

static void move_in_both_directions(fixture *fixture) {
    CHECK_EQ(arena_read(fixture, SERVED()).method, KVMEM_METHOD_NIXL_SERVED);
    CHECK_EQ(arena_write(fixture, SERVED()).method, KVMEM_METHOD_NIXL_SERVED);
}

TEST(every_byte_moves_between_all_kinds) {
    for (size_t here = 0; here < KV_NUM_KINDS; here++) {
        CLEANUP(fixture_close) fixture fixture;
        arena_open(&fixture, &kv_kinds[here], &kv_kinds[(here + 1) % KV_NUM_KINDS], "far",
                   REF(OPTIONS(kvmem_serve_options, it.flags = KVMEM_SERVE_WRITE, it.staging_size = SMALL_ARENA)));
        move_in_both_directions(&fixture);
    }
}

TEST(slots_of_the_default_size_contain_the_whole_transfer) {
    CLEANUP(fixture_close) fixture fixture;
    open_with(&fixture, REF(OPTIONS(kvmem_serve_options, it.flags = KVMEM_SERVE_WRITE)));
    move_in_both_directions(&fixture);
}

/* Values alone are contiguous on neither side. The bytes between them are neither read nor written. */
TEST(nothing_is_read_in_excess) {
    OPENED(fixture, fixture);
    const char *const parts[] = {"bytes read in excess: 0", "NIXL, served", "NIXL, staged",
                                 "GB/s: not used: another method was requested", NULL};
    arena_check_values(&fixture, KVMEM_METHOD_NIXL_SERVED, parts);
}

/* Half of each piece is moved. A read by this side would discard as much again, and a write would need a
   descriptor per row. Costs are measured per peer, and this peer is new. */
TEST(transfers_are_served_if_that_costs_less) {
    CLEANUP(fixture_close) fixture fixture;
    arena_open(&fixture, &kv_kinds[1], &kv_kinds[0], "new",
               REF(OPTIONS(kvmem_serve_options, it.flags = KVMEM_SERVE_WRITE)));
    const kvmem_layout *near = fixture.side.layout, *far = fixture.peer.model.layout;
    const kv_job options = kv_outers_job(&all_layers, values);
    CHECK_EQ(kv_run_with(near, far, &options).method, KVMEM_METHOD_NIXL_SERVED);
    kv_expect_outers_moved(&fixture.peer.model, &fixture.side, &all_layers, values);
    kv_peer_check(&fixture.peer);
}

TEST(a_layout_that_is_not_served_is_read_and_written_directly) {
    CLEANUP(fixture_close) fixture fixture;
    arena_open(&fixture, &kv_kinds[1], &kv_kinds[0], "silent", NULL);
    const kvmem_layout *near = fixture.side.layout, *far = fixture.peer.model.layout;
    OWN(kvmem_transfer, read, kv_prepare, far, near, KV_JOB(&all_layers));
    kvmem_compared_method explained;
    const char *text = kv_explained(read, &explained);
    CHECK_EQ(explained.method, KVMEM_METHOD_NIXL_STAGED);
    CHECK_HAS(text, "the owner does not serve the layout (kvmem_layout_serve)");
    OWN(kvmem_transfer, direct, kv_prepare, far, near, KV_JOB(&all_layers, it.transfer.method = KVMEM_METHOD_NIXL));
    CHECK_EQ(transfer_choice(direct, KVMEM_METHOD_NIXL_SERVED), KVMEM_CHOICE_IMPOSSIBLE);
    CHECK_EQ(transfer_choice(direct, KVMEM_METHOD_NIXL_STAGED), KVMEM_CHOICE_NOT_USED);
    RUN(read);
    kv_side_check_moved(&fixture.side, &fixture.peer.model, &all_layers);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "the owner does not serve the layout", kv_prepare, far, near,
           SERVED());
}

TEST(an_owner_that_serves_only_reads_serves_no_writes) {
    CLEANUP(fixture_close) fixture fixture;
    open_with(&fixture, REF(OPTIONS(kvmem_serve_options, it.staging_size = SMALL_ARENA)));
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "the owner serves reads of the layout, and no writes",
           kv_prepare, fixture.side.layout, fixture.peer.model.layout, SERVED());
    arena_read(&fixture, SERVED());
}

TEST(layers_are_served_one_by_one_and_the_peer_is_notified) {
    OPENED(fixture, fixture);
    arena_check_layers(&fixture, *SERVED());
}

/* More than the sessions, and than the requests that may wait while slots are in use. */
TEST(transfers_that_share_an_owner_all_complete) {
    OPENED(fixture, fixture);
    arena_check_many(&fixture, 14, SERVED());
}

/* Two agents read from one owner at the same time. */
TEST(two_requesters_are_served_concurrently) {
    OPENED(fixture, fixture);
    OWNED(kvmem_agent) other = agent_open("other");
    OPENED(kv_side, side, REF(arena_config(&kv_kinds[2])), other, 5);
    agent_load(other, &fixture.peer.metadata);
    OWN(kvmem_layout, far, kvmem_layout_import, other, fixture.peer.descriptor.data,
        fixture.peer.descriptor.size);
    repeated streams[2] = {{.patience = PATIENCE}, {.patience = PATIENCE}};
    EXPECT_OK(kv_prepare(fixture.peer.model.layout, fixture.side.layout, SERVED(),
                                    &streams[0].transfer, ERR));
    EXPECT_OK(kv_prepare(far, side.layout, SERVED(), &streams[1].transfer, ERR));
    threads threads;
    threads_start(&threads, NUM(streams), repeat_transfer, streams, sizeof(streams[0]));
    while (streams[0].rounds < 5 || streams[1].rounds < 5) sched_yield();
    streams[0].stops = streams[1].stops = true;
    threads_join(&threads);
    for (size_t i = 0; i < NUM(streams); i++) {
        CHECK_EQ(streams[i].last, KVMEM_STATUS_OK);
        kvmem_transfer_destroy(streams[i].transfer);
    }
    kv_side_check_moved(&fixture.side, &fixture.peer.model, &all_layers);
    kv_side_check_moved(&side, &fixture.peer.model, &all_layers);
}

TEST(a_cancelled_transfer_ends_and_runs_again) {
    OPENED(fixture, fixture);
    arena_check_cancelled(&fixture, SERVED());
}

TEST(a_transfer_with_an_invalidated_peer_is_stale) {
    OPENED(fixture, fixture);
    arena_check_stale(&fixture, SERVED());
}

/* The owner dies in an arbitrary state: a session may be opened, gathered for, read from or closed. */
TEST(an_owner_killed_during_a_transfer_is_lost) {
    for (unsigned rounds = 0; rounds < 4; rounds += 2) {
        OPENED(fixture, fixture);
        arena_check_killed(&fixture, rounds, SERVED(), SERVED());
    }
}

TEST(a_run_with_an_unresponsive_owner_ends_in_time) {
    OPENED(fixture, fixture);
    OWN(kvmem_transfer, stalled, kv_prepare, fixture.peer.model.layout, fixture.side.layout,
        SERVED_WITH(it.transfer.stall_timeout_ns = MILLISECONDS(50)));
    peer_freeze(&fixture.peer.process);
    RUN_ENDS(KVMEM_STATUS_TIMED_OUT, "with agent 'far': nothing was moved for 50 ms", stalled);
    peer_thaw(&fixture.peer.process);
    arena_read_when_free(&fixture, SERVED()); /* the owner also receives that the first was closed */
}

TEST(a_run_with_an_unresponsive_owner_ends_at_its_deadline) {
    OPENED(fixture, fixture);
    arena_check_deadline(&fixture, SERVED(), SERVED());
}

/* A process that reads from this one repeatedly, or writes to it. */
enum { MEET = 1, ROUND };

static void repeat_until_killed(int socket, bool writes) {
    CLEANUP(message_free) message name = frame_expect(socket, MEET);
    CLEANUP(message_free) message metadata = frame_expect(socket, MEET);
    CLEANUP(message_free) message descriptor = frame_expect(socket, MEET);
    kvmem_agent *agent = agent_open((const char *)name.data);
    kv_side side;
    kv_side_open(&side, REF(arena_config(&kv_kinds[1])), agent, 3);
    agent_load(agent, &metadata);
    OWN(kvmem_layout, far, kvmem_layout_import, agent, descriptor.data, descriptor.size);
    OWN(kvmem_transfer, moves, kv_prepare, writes ? side.layout : far, writes ? far : side.layout, SERVED());
    for (;;) {
        RUN(moves);
        frame_send(socket, ROUND, NULL, 0);
    }
}

ROLE(requester) { repeat_until_killed(socket, false); }

ROLE(writer) { repeat_until_killed(socket, true); }

static void meet(peer *requester, const char *name, const message *metadata, const message *descriptor) {
    frame_send(requester->socket, MEET, name, strlen(name) + 1);
    frame_send(requester->socket, MEET, metadata->data, metadata->size);
    frame_send(requester->socket, MEET, descriptor->data, descriptor->size);
}

static void expect_round(const peer *requester) { frame_await(requester->socket, ROUND); }

TEST(requesters_that_are_killed_or_frozen_do_not_stall_the_owner) {
    OWNED(kvmem_agent) agent = agent_open("owner");
    OPENED(kv_side, side, REF(arena_config(&kv_kinds[0])), agent, 7);
    EXPECT_OK(kvmem_layout_serve(side.layout,
                                 REF(OPTIONS(kvmem_serve_options, it.staging_size = SMALL_ARENA,
                                             it.stall_timeout_ns = MILLISECONDS(3000))),
                                 ERR));
    CLEANUP(message_free) message metadata = agent_metadata(agent);
    CLEANUP(message_free) message descriptor = layout_descriptor(side.layout);
    static const char *const names[] = {"one", "two", "three"};
    peer requesters[NUM(names)];
    for (size_t i = 0; i < NUM(names); i++) {
        requesters[i] = peer_start("requester");
        meet(&requesters[i], names[i], &metadata, &descriptor);
    }
    for (size_t i = 0; i < NUM(names); i++) expect_round(&requesters[i]);
    peer_kill(&requesters[0]);
    peer_freeze(&requesters[1]); /* in an arbitrary state, holding its slots */
    for (int round = 0; round < 8; round++) expect_round(&requesters[2]);
    peer_kill(&requesters[1]);
    peer_kill(&requesters[2]);
    kv_side_check(&side);
}

/* As in other containers: that they have ended is never proven here. */
TEST(writers_that_end_in_other_namespaces_leave_slots_for_others) {
    OWNED(kvmem_agent) agent = agent_open("owner");
    OPENED(kv_side, side, REF(arena_config(&kv_kinds[0])), agent, 7);
    EXPECT_OK(kvmem_layout_serve(side.layout,
                                 REF(OPTIONS(kvmem_serve_options, it.flags = KVMEM_SERVE_WRITE,
                                             it.staging_size = SMALL_ARENA,
                                             it.stall_timeout_ns = MILLISECONDS(300))),
                                 ERR));
    CLEANUP(message_free) message metadata = agent_metadata(agent);
    CLEANUP(message_free) message descriptor = layout_descriptor(side.layout);
    static const char *const names[] = {"one", "two", "three"};
    peer writers[NUM(names)];
    const int own = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
    CHECK(own >= 0);
    for (size_t i = 0; i < NUM(names); i++) {
        if (unshare(CLONE_NEWPID) != 0) FAIL("this machine allows no PID namespace: %s", strerror(errno));
        writers[i] = peer_start("writer");
        CHECK_EQ(setns(own, CLONE_NEWPID), 0);
        meet(&writers[i], names[i], &metadata, &descriptor);
    }
    close(own);
    for (size_t i = 0; i < NUM(names); i++) expect_round(&writers[i]);
    for (size_t i = 0; i < NUM(names); i++) peer_kill(&writers[i]); /* in an arbitrary state, holding slots */
    OWNED(kvmem_agent) reader = agent_open("reader");
    OPENED(kv_side, local, REF(arena_config(&kv_kinds[1])), reader, 3);
    agent_load(reader, &metadata);
    OWN(kvmem_layout, far, kvmem_layout_import, reader, descriptor.data, descriptor.size);
    OWN(kvmem_transfer, read, kv_prepare, far, local.layout, SERVED_WITH(it.transfer.stall_timeout_ns = SECONDS(30)));
    for (int round = 0; round < 4; round++) RUN(read);
}

int main(int argc, char **argv) {
    /* Set before NIXL is loaded; peers inherit it. */
    if (OVER_TCP) setenv("UCX_TLS", "tcp,self", 1);
    return test_main(argc, argv, test_registered());
}
