// SPDX-License-Identifier: Apache-2.0
// A peer that is killed or stopped before each step of meeting it. CTest runs it over shared memory and over TCP.
// No call hangs: the deadline of the process bounds all of them.
#include "harness.h"

KV_PEER_ROLE

/* How soon a transfer with a dead peer must have failed. */
#define SOON SECONDS(5)

static const kv_move move = KV_MOVE(3, {6, 0}, {0, 5}, {3, 3});

enum { LOAD, CONNECT, IMPORT, CREATE, MOVE, NOTIFY, NUM_STEPS };

/* An agent on its way to read blocks of a peer. */
typedef struct visit {
    kvmem_agent *agent;
    kv_side side;
    kv_side aside; /* for transfers with other peers meanwhile */
    kv_peer *peer;
    uint64_t patience; /* of the step that moves blocks */
    kvmem_layout *remote;
    kvmem_transfer *transfer;
} visit;

static void visit_open(visit *visit, kv_peer *peer) {
    *visit = (struct visit){.agent = agent_open("visitor"), .peer = peer, .patience = SOON};
    kv_side_open(&visit->side, REF(kv_config(&kv_kinds[0])), visit->agent, 1);
    kv_side_open(&visit->aside, REF(kv_config(&kv_kinds[0])), visit->agent, 4);
}

static void leave(visit *visit) {
    kvmem_transfer_destroy(visit->transfer);
    kvmem_layout_destroy(visit->remote);
    visit->transfer = NULL;
    visit->remote = NULL;
}

static void visit_close(visit *visit) {
    leave(visit);
    kv_side_close(&visit->side);
    kv_side_close(&visit->aside);
    kvmem_agent_destroy(visit->agent);
}

static kvmem_status take_step(visit *visit, int step) {
    const kv_peer *peer = visit->peer;
    switch (step) {
    case LOAD:
        return kvmem_agent_load_remote_metadata(visit->agent, peer->metadata.data, peer->metadata.size, NULL,
                                                ERR);
    case CONNECT: return kvmem_agent_connect(visit->agent, peer->name, NULL, ERR);
    case IMPORT:
        return kvmem_layout_import(visit->agent, peer->descriptor.data, peer->descriptor.size, &visit->remote,
                                   ERR);
    case CREATE:
        return kvmem_transfer_create(visit->remote, visit->side.layout, KV_OPTIONS(&move), &visit->transfer,
                                     ERR);
    case MOVE: return submit_and_wait(visit->transfer, visit->patience);
    default: return kvmem_agent_notify(visit->agent, peer->name, "done", 4, ERR);
    }
}

static void take_steps(visit *visit, int from, int to) {
    for (int step = from; step < to; step++) EXPECT_OK(take_step(visit, step));
}

/* The peer is a new one, under its name: it is met as if it were the first. */
static void meet_again(visit *visit) {
    kv_peer risen;
    kv_peer_open(&risen, visit->peer->name, REF(kv_config(&kv_kinds[0])), 3);
    leave(visit);
    visit->peer = &risen;
    if (kvmem_agent_check_remote_metadata(visit->agent, risen.name, NULL) == KVMEM_STATUS_OK)
        EXPECT_OK(kvmem_agent_invalidate_remote_metadata(visit->agent, risen.name, ERR));
    memcpy(visit->side.expected, visit->side.memory, visit->side.size); /* whatever was read of the old one */
    take_steps(visit, LOAD, MOVE + 1);
    kv_side_check_moved(&visit->side, &risen.model, &move);
    leave(visit);
    kv_peer_close(&risen);
}

/* Each later step succeeds, because NIXL has not noticed yet, or fails because the peer is gone; blocks never arrive
   from it. */
static void check_killed_before(int killed) {
    kv_peer peer;
    kv_peer_open(&peer, "victim", REF(kv_config(&kv_kinds[0])), 2);
    OPENED(visit, visit, &peer);
    take_steps(&visit, LOAD, killed);
    kv_peer_crash(&peer);
    kvmem_status status = KVMEM_STATUS_OK;
    for (int step = killed; step < NUM_STEPS && status == KVMEM_STATUS_OK; step++) {
        status = take_step(&visit, step);
        CHECK(status == KVMEM_STATUS_OK || status == KVMEM_STATUS_PEER_LOST || status == KVMEM_STATUS_NIXL);
        CHECK(step != MOVE || status == KVMEM_STATUS_PEER_LOST);
        /* Once a layout has named its process, the peer is known to be lost. */
        CHECK(step < IMPORT || status != KVMEM_STATUS_NIXL);
    }
    meet_again(&visit);
    kv_peer_close(&peer);
}

TEST_CALL(killed_before_its_metadata_is_loaded, check_killed_before(LOAD))
TEST_CALL(killed_before_the_connection, check_killed_before(CONNECT))
TEST_CALL(killed_before_its_layout_is_imported, check_killed_before(IMPORT))
TEST_CALL(killed_before_the_transfer_is_created, check_killed_before(CREATE))
TEST_CALL(killed_before_the_transfer_runs, check_killed_before(MOVE))
TEST_CALL(killed_before_the_notification, check_killed_before(NOTIFY))

/* What has nothing to do with the stopped peer works as before. */
static void use_agent(visit *visit, kv_peer *other) {
    OWN(kvmem_region, region, kvmem_region_create_system, REF(OPTIONS(kvmem_system_options, it.size = 4096)));
    OWN(kvmem_registration, registration, kvmem_region_register, region, visit->agent);
    CLEANUP(message_free) message metadata = agent_metadata(visit->agent);
    REFUSE(KVMEM_STATUS_TIMED_OUT, "", kvmem_agent_take_notifications, visit->agent, 0);
    kv_run(other->model.layout, visit->aside.layout, &move);
    kv_side_check_moved(&visit->aside, &other->model, &move);
    EXPECT_OK(kvmem_registration_deregister(registration, ERR));
}

/* A request with a limit ends in time, and again succeeds when the peer goes on. */
static void request_in_time(visit *visit) {
    GET(kvmem_block, there, kvmem_layout_get_block, visit->peer->model.layout, 0, 0, 0);
    GET(kvmem_block, here, kvmem_layout_get_block, visit->side.layout, 0, 0, 0);
    OWN(kvmem_descriptors, remote, kvmem_descriptors_create, KVMEM_MEMORY_DRAM);
    OWN(kvmem_descriptors, local, kvmem_descriptors_create, KVMEM_MEMORY_DRAM);
    EXPECT_OK(kvmem_descriptors_add(remote, &(kvmem_descriptor){.address = there.address, .size = 48}, 1, ERR));
    EXPECT_OK(kvmem_descriptors_add(local, &(kvmem_descriptor){.address = here.address, .size = 48}, 1, ERR));
    OWN(kvmem_request, read, kvmem_request_create, visit->agent, KVMEM_REQUEST_READ, local, "sleeper", remote,
        REF(OPTIONS(kvmem_nixl_options, it.timeout_ns = MILLISECONDS(20))));
    EXPECT_OK(kvmem_request_post(read, NULL, 0, ERR));
    const kvmem_status status = kvmem_request_wait(read, PATIENCE, ERR);
    CHECK(status == KVMEM_STATUS_OK || status == KVMEM_STATUS_TIMED_OUT); /* shared memory needs no help */
    if (status == KVMEM_STATUS_TIMED_OUT) {
        CHECK_HAS(test_last_message(), "with agent 'sleeper' was not complete after 20 ms");
        EXPECT(KVMEM_STATUS_BUSY, kvmem_request_post(read, NULL, 0, ERR));
    }
    peer_thaw(&visit->peer->process);
    kvmem_status again = KVMEM_STATUS_BUSY;
    while (again == KVMEM_STATUS_BUSY) { /* the deadline of the process bounds it */
        again = kvmem_request_post(read, NULL, 0, ERR);
    }
    CHECK_EQ(again, KVMEM_STATUS_OK);
    kvmem_status end = KVMEM_STATUS_BUSY;
    while ((end = kvmem_request_poll(read, ERR)) == KVMEM_STATUS_IN_PROGRESS) sched_yield();
    CHECK(end == KVMEM_STATUS_OK || end == KVMEM_STATUS_TIMED_OUT); /* a busy machine may be slow */
    memcpy(visit->side.expected, visit->side.memory, visit->side.size);
}

/* Stopped before a step: that step and what follows succeed at once, or once the peer goes on. */
static void stop_before(visit *visit, kv_peer *other, int stopped) {
    take_steps(visit, LOAD, stopped);
    visit->patience = MILLISECONDS(20);
    peer_freeze(&visit->peer->process);
    const load_clock clock = load_begin();
    kvmem_status status = KVMEM_STATUS_OK;
    int step = stopped;
    while (step < NUM_STEPS && status == KVMEM_STATUS_OK) status = take_step(visit, step++);
    CHECK(status == KVMEM_STATUS_OK || (status == KVMEM_STATUS_TIMED_OUT && step == MOVE + 1));
    do {
        use_agent(visit, other);
    } while (load_lasts(&clock, stop_duration()));
    peer_thaw(&visit->peer->process);
    visit->patience = PATIENCE;
    EXPECT_OK(kvmem_transfer_wait(visit->transfer, PATIENCE, ERR));
    kv_expect_moved(&visit->side, &visit->peer->model, &move);
    kv_side_check(&visit->side);
    take_steps(visit, step, NUM_STEPS);
    kv_peer_expect_notification(visit->peer, "visitor", "done", 4);
    leave(visit);
    EXPECT_OK(kvmem_agent_invalidate_remote_metadata(visit->agent, visit->peer->name, ERR));
}

TEST(stopped_before_each_step) {
    OPENED(kv_peer, other, "other", REF(kv_config(&kv_kinds[0])), 5);
    OPENED(kv_peer, peer, "sleeper", REF(kv_config(&kv_kinds[0])), 2);
    OPENED(visit, visit, &peer);
    kv_peer_meet(&other, visit.agent);
    for (int step = LOAD; step < NUM_STEPS; step++) {
        stop_before(&visit, &other, step);
    }
    kvmem_layout_destroy(other.model.layout);
    other.model.layout = NULL;
}

TEST(a_request_to_a_stopped_peer_has_a_limit) {
    OPENED(kv_peer, peer, "sleeper", REF(kv_config(&kv_kinds[0])), 2);
    OPENED(visit, visit, &peer);
    kv_peer_meet(&peer, visit.agent);
    kv_run(peer.model.layout, visit.side.layout, &move); /* connected */
    peer_freeze(&peer.process);
    request_in_time(&visit);
    kvmem_layout_destroy(peer.model.layout);
    peer.model.layout = NULL;
}

/* A message is on its way to it, or was given up; the agent ends nevertheless. */
TEST(an_agent_is_destroyed_while_its_peer_is_stopped) {
    OPENED(kv_peer, peer, "sleeper", REF(kv_config(&kv_kinds[0])), 2);
    visit visit;
    visit_open(&visit, &peer);
    kv_peer_meet(&peer, visit.agent);
    peer_freeze(&peer.process);
    CLEANUP(test_free) unsigned char *large = test_allocate(MIB);
    EXPECT_OK(kvmem_agent_notify(visit.agent, "sleeper", large, MIB, ERR));
    EXPECT_OK(kvmem_agent_notify(visit.agent, "sleeper", "x", 1, ERR));
    kvmem_layout_destroy(peer.model.layout);
    peer.model.layout = NULL;
    visit_close(&visit);
    peer_thaw(&peer.process);
}
