// SPDX-License-Identifier: Apache-2.0
// A peer that is killed or stopped before each step of exchanging metadata and blocks with it. CTest runs
// this over shared memory and over TCP. No call hangs; only the deadline of the process limits them.
#include "harness.h"

KV_PEER_ROLE

static const kv_move move = KV_MOVE(3, {6, 0}, {0, 5}, {3, 3});

enum { LOAD, CONNECT, IMPORT, CREATE, MOVE, NOTIFY, NUM_STEPS };

/* The state of an agent that reads blocks of a peer step by step. */
typedef struct reading {
    kvmem_agent *agent;
    kv_side side;
    kv_side other_side; /* for transfers with other peers meanwhile */
    kv_peer *peer;
    uint64_t patience; /* timeout of the step that moves blocks */
    kvmem_layout *remote;
    kvmem_transfer *transfer;
} reading;

static void reading_open(reading *reading, kv_peer *peer) {
    *reading = (struct reading){.agent = agent_open("visitor"), .peer = peer, .patience = PATIENCE};
    kv_side_open(&reading->side, REF(kv_config(&kv_kinds[0])), reading->agent, 1);
    kv_side_open(&reading->other_side, REF(kv_config(&kv_kinds[0])), reading->agent, 4);
}

static void free_handles(reading *reading) {
    kvmem_transfer_destroy(reading->transfer);
    kvmem_layout_destroy(reading->remote);
    reading->transfer = NULL;
    reading->remote = NULL;
}

static void reading_close(reading *reading) {
    free_handles(reading);
    kv_side_close(&reading->side);
    kv_side_close(&reading->other_side);
    kvmem_agent_destroy(reading->agent);
}

static kvmem_status take_step(reading *reading, int step) {
    const kv_peer *peer = reading->peer;
    switch (step) {
    case LOAD:
        return kvmem_agent_load_remote_metadata(reading->agent, peer->metadata.data, peer->metadata.size,
                                                NULL,
                                                ERR);
    case CONNECT: return kvmem_agent_connect(reading->agent, peer->name, NULL, KVMEM_TIMEOUT_FOREVER, ERR);
    case IMPORT:
        return kvmem_layout_import(reading->agent, peer->descriptor.data, peer->descriptor.size,
                                   &reading->remote,
                                   ERR);
    case CREATE:
        return kv_prepare(reading->remote, reading->side.layout, KV_JOB(&move), &reading->transfer,
                                     ERR);
    case MOVE: return submit_and_wait(reading->transfer, reading->patience);
    default: return kvmem_agent_notify(reading->agent, peer->name, "done", 4, ERR);
    }
}

static void take_steps(reading *reading, int from, int to) {
    for (int step = from; step < to; step++) EXPECT_OK(take_step(reading, step));
}

/* A new peer with the same name: all steps succeed as with the first one. */
static void repeat_with_new_peer(reading *reading) {
    kv_peer restarted;
    kv_peer_open(&restarted, reading->peer->name, REF(kv_config(&kv_kinds[0])), 3);
    free_handles(reading);
    reading->peer = &restarted;
    if (kvmem_agent_check_remote_metadata(reading->agent, restarted.name, NULL) == KVMEM_STATUS_OK)
        EXPECT_OK(kvmem_agent_invalidate_remote_metadata(reading->agent, restarted.name, NULL, ERR));
    /* any part may have been read from the old peer */
    memcpy(reading->side.expected, reading->side.memory, reading->side.size);
    take_steps(reading, LOAD, MOVE + 1);
    kv_side_check_moved(&reading->side, &restarted.model, &move);
    free_handles(reading);
    kv_peer_close(&restarted);
}

/* Each later step succeeds, because NIXL has not noticed yet, or fails because the peer is gone. Blocks never
   arrive. */
static void check_killed_before(int killed) {
    kv_peer peer;
    kv_peer_open(&peer, "victim", REF(kv_config(&kv_kinds[0])), 2);
    OPENED(reading, reading, &peer);
    take_steps(&reading, LOAD, killed);
    kv_peer_crash(&peer);
    kvmem_status status = KVMEM_STATUS_OK;
    for (int step = killed; step < NUM_STEPS && status == KVMEM_STATUS_OK; step++) {
        status = take_step(&reading, step);
        CHECK(status == KVMEM_STATUS_OK || status == KVMEM_STATUS_PEER_LOST || status == KVMEM_STATUS_NIXL);
        CHECK(step != MOVE || status == KVMEM_STATUS_PEER_LOST);
        /* Once a layout has identified its process, the loss of the peer is detected. */
        CHECK(step < IMPORT || status != KVMEM_STATUS_NIXL);
    }
    repeat_with_new_peer(&reading);
    kv_peer_close(&peer);
}

TEST_CALL(killed_before_its_metadata_is_loaded, check_killed_before(LOAD))
TEST_CALL(killed_before_the_connection, check_killed_before(CONNECT))
TEST_CALL(killed_before_its_layout_is_imported, check_killed_before(IMPORT))
TEST_CALL(killed_before_the_transfer_is_created, check_killed_before(CREATE))
TEST_CALL(killed_before_the_transfer_runs, check_killed_before(MOVE))
TEST_CALL(killed_before_the_notification, check_killed_before(NOTIFY))

/* Operations without the stopped peer work as before. */
static void use_agent(reading *reading, kv_peer *other) {
    OWN(kvmem_region, region, kvmem_region_create_system, REF(OPTIONS(kvmem_system_options, it.size = 4096)));
    OWN(kvmem_registration, registration, kvmem_region_register, region, reading->agent);
    CLEANUP(message_free) message metadata = agent_metadata(reading->agent);
    REFUSE(KVMEM_STATUS_TIMED_OUT, "", kvmem_agent_take_notifications, reading->agent, 0);
    kv_run(other->model.layout, reading->other_side.layout, &move);
    kv_side_check_moved(&reading->other_side, &other->model, &move);
    EXPECT_OK(kvmem_registration_deregister(registration, ERR));
}

/* Over TCP the process of the peer responds to reads. Shared memory is read without it, at any time. */
static bool needs_peer(void) {
    const char *transports = getenv("UCX_TLS");
    return transports != NULL && strcmp(transports, "tcp") == 0;
}

/* A request with a limit ends in time, and succeeds later when the peer continues. */
static void request_in_time(reading *reading) {
    GET(kvmem_block, there, kvmem_layout_get_block, reading->peer->model.layout, 0, 0, 0);
    GET(kvmem_block, here, kvmem_layout_get_block, reading->side.layout, 0, 0, 0);
    const kvmem_nixl_descriptor remote = {.address = there.address, .size = 48,
                                          .memory_type = KVMEM_MEMORY_DRAM};
    const kvmem_nixl_descriptor local = WITH(remote, it.address = here.address);
    OWN(kvmem_request, read, kvmem_request_create, reading->agent, KVMEM_REQUEST_READ, &local, "sleeper",
        &remote, 1,
        REF(OPTIONS(kvmem_nixl_options, it.run_timeout_ns = SECONDS(1))));
    EXPECT_OK(kvmem_request_post(read, NULL, 0, ERR));
    const kvmem_status status = kvmem_request_wait(read, PATIENCE, ERR);
    CHECK(status == KVMEM_STATUS_OK || status == KVMEM_STATUS_TIMED_OUT);
    if (status == KVMEM_STATUS_TIMED_OUT)
        CHECK_HAS(test_last_message(), "with agent 'sleeper' was not complete after 1000 ms");
    if (needs_peer()) {
        CHECK_EQ(status, KVMEM_STATUS_TIMED_OUT);
        EXPECT(KVMEM_STATUS_BUSY, kvmem_request_post(read, NULL, 0, ERR));
    }
    peer_thaw(&reading->peer->process);
    kvmem_status again = KVMEM_STATUS_BUSY;
    while (again == KVMEM_STATUS_BUSY) { /* only the deadline of the process limits this */
        again = kvmem_request_post(read, NULL, 0, ERR);
    }
    CHECK_EQ(again, KVMEM_STATUS_OK);
    kvmem_status end = KVMEM_STATUS_BUSY;
    while ((end = kvmem_request_poll(read, ERR)) == KVMEM_STATUS_IN_PROGRESS) sched_yield();
    CHECK(end == KVMEM_STATUS_OK || end == KVMEM_STATUS_TIMED_OUT); /* a busy machine may be slow */
    memcpy(reading->side.expected, reading->side.memory, reading->side.size);
}

/* Stopped before a step: that step and the next ones succeed at once, or once the peer continues. */
static void stop_before(reading *reading, kv_peer *other, int stopped) {
    take_steps(reading, LOAD, stopped);
    reading->patience = MILLISECONDS(20);
    peer_freeze(&reading->peer->process);
    const load_clock clock = load_begin();
    kvmem_status status = KVMEM_STATUS_OK;
    int step = stopped;
    while (step < NUM_STEPS && status == KVMEM_STATUS_OK) status = take_step(reading, step++);
    CHECK(status == KVMEM_STATUS_OK || (status == KVMEM_STATUS_TIMED_OUT && step == MOVE + 1));
    do {
        use_agent(reading, other);
    } while (load_lasts(&clock, stop_duration()));
    peer_thaw(&reading->peer->process);
    reading->patience = PATIENCE;
    EXPECT_OK(kvmem_transfer_wait(reading->transfer, PATIENCE, ERR));
    kv_expect_moved(&reading->side, &reading->peer->model, &move);
    kv_side_check(&reading->side);
    take_steps(reading, step, NUM_STEPS);
    kv_peer_expect_notification(reading->peer, "visitor", "done", 4);
    free_handles(reading);
    EXPECT_OK(kvmem_agent_invalidate_remote_metadata(reading->agent, reading->peer->name, NULL, ERR));
}

TEST(stopped_before_each_step) {
    OPENED(kv_peer, other, "other", REF(kv_config(&kv_kinds[0])), 5);
    OPENED(kv_peer, peer, "sleeper", REF(kv_config(&kv_kinds[0])), 2);
    OPENED(reading, reading, &peer);
    kv_peer_meet(&other, reading.agent);
    for (int step = LOAD; step < NUM_STEPS; step++) {
        stop_before(&reading, &other, step);
    }
    DESTROYED(kvmem_layout, other.model.layout);
}

TEST(a_request_to_a_stopped_peer_has_a_limit) {
    OPENED(kv_peer, peer, "sleeper", REF(kv_config(&kv_kinds[0])), 2);
    OPENED(reading, reading, &peer);
    kv_peer_meet(&peer, reading.agent);
    kv_run(peer.model.layout, reading.side.layout, &move); /* connected */
    peer_freeze(&peer.process);
    request_in_time(&reading);
    DESTROYED(kvmem_layout, peer.model.layout);
}

/* A message to it is in flight, or timed out; the agent is destroyed nevertheless. */
TEST(an_agent_is_destroyed_while_its_peer_is_stopped) {
    OPENED(kv_peer, peer, "sleeper", REF(kv_config(&kv_kinds[0])), 2);
    reading reading;
    reading_open(&reading, &peer);
    kv_peer_meet(&peer, reading.agent);
    peer_freeze(&peer.process);
    CLEANUP(test_free) unsigned char *large = test_allocate(MIB);
    EXPECT_OK(kvmem_agent_notify(reading.agent, "sleeper", large, MIB, ERR));
    EXPECT_OK(kvmem_agent_notify(reading.agent, "sleeper", "x", 1, ERR));
    DESTROYED(kvmem_layout, peer.model.layout);
    reading_close(&reading);
    peer_thaw(&peer.process);
}
