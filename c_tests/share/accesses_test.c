// SPDX-License-Identifier: Apache-2.0
// Which blocks peers may still read or write, by sessions that this process serves. share.accesses_tcp has the same over TCP.
#include "exchange.h"
#include "gate.h"
#include "opened.h"

#include <sched.h>

#define NUM_BLOCKS 8
#define PIECE 4096

enum { READ = 1, WRITE, CONTINUE, DONE };

static const kvmem_block_pair pairs[] = {{3, 0}, {5, 1}};

static kvmem_layout_config config_of(const char *order) {
    return OPTIONS(kvmem_layout_config, it.num_blocks = NUM_BLOCKS, it.num_layers = 2, it.outer_dim = 1, it.page_size = 16,
                   it.num_heads = 2, it.inner_dim = 128, it.dtype_width = 2, it.order = order);
}

static kvmem_layout *build(const char *order, kvmem_agent *agent) {
    const kvmem_layout_config config = config_of(order);
    const kvmem_system_options system = {.struct_size = sizeof(system), .flags = KVMEM_SYSTEM_SHAREABLE};
    return MADE(kvmem_layout, kvmem_layout_build,
                REF(OPTIONS(kvmem_layout_options, it.config = &config, it.agent = agent, it.source = KVMEM_LAYOUT_ALLOCATE,
                            it.system = &system)));
}

/* Role: reads blocks of the owner, or writes them, and stops in the middle: at a page of its own blocks. */
ROLE(requester) {
    OWNED(kvmem_agent) agent = agent_open("requester");
    OWNED(kvmem_layout) own = build("BLONHC", agent);
    CLEANUP(parcel_close) parcel shared = parcel_receive(socket);
    OWNED(kvmem_layout) remote = open_layout(&shared, KVMEM_OPEN_REMOTE, agent);
    /* One of two heads: short rows, which threads of this process copy, and not the transport, which would fail at the gate. */
    const kvmem_transfer_options options =
        OPTIONS(kvmem_transfer_options, it.method = KVMEM_METHOD_NIXL_SERVED, it.num_heads = 1);
    static const kvmem_block_pair reversed[] = {{0, 3}, {1, 5}};
    uint32_t tag = 0;
    while (frame_next_into(socket, &tag, NULL, 0)) {
        const bool reads = tag == READ;
        OWN(kvmem_transfer, transfer, kvmem_transfer_create, reads ? remote : own, reads ? own : remote, &options);
        GET(kvmem_block, piece, kvmem_layout_get_block, own, 0, 0, 0);
        gate_close((void *)(uintptr_t)piece.address, PIECE);
        EXPECT_OK(kvmem_transfer_submit(transfer, REF(OPTIONS(kvmem_submit_options, it.pairs = reads ? pairs : reversed, it.num_pairs = 2)), ERR));
        gate_await();
        frame_send(socket, DONE, NULL, 0);
        frame_await(socket, CONTINUE);
        gate_open();
        EXPECT_OK(kvmem_transfer_wait(transfer, PATIENCE, ERR));
        frame_send(socket, DONE, NULL, 0);
    }
}

typedef struct fixture {
    peer requester;
    kvmem_agent *agent;
    kvmem_layout *layout;
    kvmem_share *share;
} fixture;

static void fixture_open(fixture *fixture) {
    *fixture = (struct fixture){.requester = peer_start("requester"), .agent = agent_open("owner")};
    fixture->layout = build("L/BONHC", fixture->agent);
    EXPECT_OK(kvmem_layout_serve(fixture->layout, REF(OPTIONS(kvmem_serve_options, it.flags = KVMEM_SERVE_WRITE)), ERR));
    fixture->share = MADE(kvmem_share, kvmem_share_create_layout, fixture->layout, NULL);
    CLEANUP(parcel_close) parcel shared = parcel_of(fixture->share);
    parcel_send(fixture->requester.socket, &shared);
}

static void fixture_close(fixture *fixture) {
    if (fixture->requester.pid > 0) peer_finish(&fixture->requester);
    kvmem_share_destroy(fixture->share);
    kvmem_layout_destroy(fixture->layout);
    kvmem_agent_destroy(fixture->agent);
}

static void tell(const fixture *fixture, uint32_t tag) {
    frame_send(fixture->requester.socket, tag, NULL, 0);
    frame_await(fixture->requester.socket, DONE);
}

static size_t accesses_of(const fixture *fixture, kvmem_block_access found[2]) {
    const uint32_t blocks[] = {0, 1, 2, 3, 4, 5, 6, 7};
    GET(size_t, count, kvmem_layout_get_accesses, fixture->layout, blocks, NUM(blocks), found, 2);
    return count;
}

static void expect_session(const fixture *fixture, bool reads) {
    kvmem_block_access found[2];
    CHECK_EQ(accesses_of(fixture, found), 2);
    for (size_t i = 0; i < 2; i++) {
        CHECK_EQ(found[i].block, pairs[i].source);
        CHECK_EQ(found[i].accessor, KVMEM_ACCESSOR_PEER);
        CHECK_EQ(found[i].reads, reads);
        CHECK_EQ(found[i].writes, !reads);
        CHECK_EQ(found[i].pid, fixture->requester.pid);
        CHECK_EQ(strcmp(found[i].agent, "requester"), 0);
        CHECK_EQ(found[i].user_data, 0);
    }
}

TEST(a_session_accesses_its_blocks_until_its_requester_has_closed_it) {
    OPENED(fixture, fixture);
    kvmem_block_access found[2];
    CHECK_EQ(accesses_of(&fixture, found), 0);
    for (uint32_t tag = READ; tag <= WRITE; tag++) {
        tell(&fixture, tag);
        expect_session(&fixture, tag == READ);
        tell(&fixture, CONTINUE);
        AWAIT(accesses_of(&fixture, found) == 0); /* its last message may still be on its way */
    }
}

TEST(a_session_of_a_requester_that_was_stopped_stays_and_ends_with_its_process) {
    OPENED(fixture, fixture);
    tell(&fixture, READ);
    peer_freeze(&fixture.requester);
    expect_session(&fixture, true);
    peer_kill(&fixture.requester);
    fixture.requester.pid = 0;
    kvmem_block_access found[2];
    AWAIT(accesses_of(&fixture, found) == 0);
}
