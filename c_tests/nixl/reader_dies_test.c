// SPDX-License-Identifier: Apache-2.0
// A peer that is killed in the middle of its transfers while the owner of the blocks is stopped: the owner
// survives that, and serves other peers. CTest runs it with UCX's default transports and over TCP.
#include "harness.h"

KV_PEER_ROLE

enum { PLAN = 1, METADATA, DESCRIPTOR, READY, STOPPED, SUBMITTED };

typedef struct plan {
    uint32_t path;
    bool writes;
} plan;

/* More than the buffers of a connection: in reverse order, so that nothing is contiguous. */
static kvmem_block_pair backwards[60];
static const kv_move move = {backwards, NUM(backwards), 0, 0, 4};

static kvmem_layout_config config_of(const kv_kind *kind) {
    for (uint32_t i = 0; i < NUM(backwards); i++)
        backwards[i] = (kvmem_block_pair){i, NUM(backwards) - 1 - i};
    return kv_large_config(kind);
}

/* Waits as long for a run as the owner, if it is stopped, can be seen not to respond. The run stays in
   flight. */
static void submit(kvmem_transfer *transfer) {
    (void)kvmem_transfer_submit(transfer, NULL, NULL);
    (void)kvmem_transfer_wait(transfer, MILLISECONDS(20), NULL);
}

/* Repeats its transfer until it is killed. */
ROLE(reader) {
    plan plan;
    frame_expect_into(socket, PLAN, &plan, sizeof(plan));
    CLEANUP(message_free) message metadata = frame_expect(socket, METADATA);
    CLEANUP(message_free) message descriptor = frame_expect(socket, DESCRIPTOR);
    OWNED(kvmem_agent) agent = agent_open("reader");
    OPENED(kv_side, side, REF(config_of(&kv_kinds[1])), agent, 1);
    agent_load(agent, &metadata);
    OWN(kvmem_layout, remote, kvmem_layout_import, agent, descriptor.data, descriptor.size);
    const kvmem_layout *source = plan.writes ? side.layout : remote;
    const kvmem_layout *destination = plan.writes ? remote : side.layout;
    OWN(kvmem_transfer, transfer, kv_prepare, source, destination,
        KV_JOB(&move, it.transfer.method = plan.path));
    RUN(transfer);
    frame_send(socket, READY, NULL, 0);
    frame_await(socket, STOPPED);
    submit(transfer);
    frame_send(socket, SUBMITTED, NULL, 0);
    for (;;) submit(transfer);
}

static void kill_a_reader(const kv_peer *owner, const plan *plan) {
    peer reader = peer_start("reader");
    frame_send(reader.socket, PLAN, plan, sizeof(*plan));
    frame_send(reader.socket, METADATA, owner->metadata.data, owner->metadata.size);
    frame_send(reader.socket, DESCRIPTOR, owner->descriptor.data, owner->descriptor.size);
    frame_await(reader.socket, READY);
    peer_freeze(&owner->process);
    frame_send(reader.socket, STOPPED, NULL, 0);
    frame_await(reader.socket, SUBMITTED);
    peer_kill(&reader);
    peer_thaw(&owner->process);
}

static void check(uint32_t path, bool writes) {
    const plan plan = {path, writes};
    const kvmem_layout_config config = config_of(&kv_kinds[0]);
    CLEANUP(kv_peer_close) kv_peer owner;
    kv_peer_open_served(&owner, "owner", &config, 2,
                        REF(OPTIONS(kvmem_serve_options, it.flags = KVMEM_SERVE_WRITE)));
    for (int round = 0; round < 2; round++) kill_a_reader(&owner, &plan);
    /* Any part may have been written. */
    if (!writes) kv_peer_check(&owner);
    OWNED(kvmem_agent) agent = agent_open("survivor");
    OPENED(kv_side, side, REF(config_of(&kv_kinds[0])), agent, 1);
    kv_peer_meet(&owner, agent);
    kv_run(side.layout, owner.model.layout, &(kv_move){backwards, 1, 0, 0, 4});
    kv_run(owner.model.layout, side.layout, &move);
    kv_peer_notify(&owner, "survivor", "hello", 5);
    agent_expect_notification(agent, "owner", "hello", 5);
}

TEST_CALL(during_a_read, check(KVMEM_METHOD_NIXL, false))
TEST_CALL(during_a_staged_read, check(KVMEM_METHOD_NIXL_STAGED, false))
TEST_CALL(during_a_served_read, check(KVMEM_METHOD_NIXL_SERVED, false))
TEST_CALL(during_a_write, check(KVMEM_METHOD_NIXL, true))
TEST_CALL(during_a_staged_write, check(KVMEM_METHOD_NIXL_STAGED, true))
TEST_CALL(during_a_served_write, check(KVMEM_METHOD_NIXL_SERVED, true))
