// SPDX-License-Identifier: Apache-2.0
// Transfers with a peer through the arena of an agent: which are chosen, every byte, several that share it,
// and how they end if the peer dies, answers no more or is invalidated. staged_tcp_test.c: the same over TCP.
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

/* Options: all of it through a small arena, of which there are many chunks. */
#define SMALL(direction)                                                                             \
    KV_OPTIONS(&all_layers, it.path = KVMEM_PATH_NIXL_##direction##_STAGED, it.staging_size = SMALL_ARENA)

static void fill_pairs(void) {
    for (uint32_t i = 0; i < NUM(backwards); i++) backwards[i] = (kvmem_block_pair){i, NUM_BLOCKS - 1 - i};
}

typedef kv_meeting fixture;
#define fixture_close kv_meeting_close

static void open_kinds(fixture *fixture, const kv_kind *here, const kv_kind *there) {
    fill_pairs();
    kv_meeting_open(fixture, "near", "far", REF(config_of(here)), REF(config_of(there)));
}

/* The layers of the far side are apart from each other in each block, those of the near side in regions. */
static void fixture_open(fixture *fixture) { open_kinds(fixture, &kv_kinds[1], &kv_kinds[0]); }

/* The costs of requests are measured per peer: nothing was moved to or from this one before. */
TEST(rows_are_read_and_written_by_the_path_that_costs_less) {
    fixture fixture;
    fill_pairs();
    kv_meeting_open(&fixture, "near", "new", REF(config_of(&kv_kinds[1])), REF(config_of(&kv_kinds[0])));
    const kvmem_layout *near = fixture.side.layout, *far = fixture.peer.model.layout;
    CHECK_EQ(kv_run_with(far, near, KV_OPTIONS(&all_layers)).path, KVMEM_PATH_NIXL_READ_STAGED);
    kv_side_check_moved(&fixture.side, &fixture.peer.model, &all_layers);
    CHECK_EQ(kv_run_with(near, far, KV_OPTIONS(&all_layers)).path, KVMEM_PATH_NIXL_WRITE_STAGED);
    kv_expect_moved(&fixture.peer.model, &fixture.side, &all_layers);
    kv_peer_check(&fixture.peer);
    fixture_close(&fixture);
}

/* Values alone are not contiguous: a read discards the keys between them, and a write leaves them out. */
TEST(bytes_between_rows_are_read_and_never_written) {
    OPENED(fixture, fixture);
    const kvmem_layout *near = fixture.side.layout, *far = fixture.peer.model.layout;
    kvmem_transfer_options options = kv_outers_options(&all_layers, values);
    options.path = KVMEM_PATH_NIXL_READ_STAGED;
    OWN(kvmem_transfer, read, kvmem_transfer_create, far, near, &options);
    kvmem_transfer_explanation explained;
    OWNED(kvmem_blob) text = NULL;
    EXPECT_OK(kvmem_transfer_explain(read, &explained, &text, ERR));
    CHECK_EQ(explained.path, KVMEM_PATH_NIXL_READ_STAGED);
    CHECK_HAS(kvmem_blob_data(text), "bytes in excess");
    CHECK_HAS(kvmem_blob_data(text), "NIXL read, estimated");
    RUN(read);
    kv_expect_outers_moved(&fixture.side, &fixture.peer.model, &all_layers, values);
    kv_side_check(&fixture.side);
    options.path = KVMEM_PATH_NIXL_WRITE_STAGED;
    CHECK_EQ(kv_run_with(near, far, &options).path, KVMEM_PATH_NIXL_WRITE_STAGED);
    kv_expect_outers_moved(&fixture.peer.model, &fixture.side, &all_layers, values);
    kv_peer_check(&fixture.peer);
}

TEST(what_is_contiguous_needs_no_arena) {
    fixture fixture;
    open_kinds(&fixture, &kv_kinds[0], &kv_kinds[0]);
    const kvmem_block_pair pairs[] = {{0, 0}, {1, 1}, {2, 2}, {7, 9}};
    const kv_move few = {pairs, NUM(pairs), 0, 0, 3};
    CHECK_EQ(kv_run(fixture.peer.model.layout, fixture.side.layout, &few).path, KVMEM_PATH_NIXL_READ);
    kv_side_check_moved(&fixture.side, &fixture.peer.model, &few);
    fixture_close(&fixture);
}

/* More chunks than slots, with slots that end within rows. */
TEST(small_arenas_move_every_byte_between_all_kinds) {
    for (size_t here = 0; here < KV_NUM_KINDS; here++) {
        fixture fixture;
        open_kinds(&fixture, &kv_kinds[here], &kv_kinds[(here + 1) % KV_NUM_KINDS]);
        const kvmem_layout *near = fixture.side.layout, *far = fixture.peer.model.layout;
        const kvmem_transfer_info info = kv_run_with(far, near, SMALL(READ));
        CHECK_EQ(info.path, KVMEM_PATH_NIXL_READ_STAGED);
        CHECK(info.num_requests > 300); /* of a page each */
        kv_side_check_moved(&fixture.side, &fixture.peer.model, &all_layers);
        kv_run_with(near, far, SMALL(WRITE));
        kv_expect_moved(&fixture.peer.model, &fixture.side, &all_layers);
        kv_peer_check(&fixture.peer);
        fixture_close(&fixture);
    }
}

TEST(layers_are_staged_one_by_one_and_the_peer_is_notified) {
    OPENED(fixture, fixture);
    const kvmem_layout *near = fixture.side.layout, *far = fixture.peer.model.layout;
    OWN(kvmem_transfer, read, kvmem_transfer_create, far, near,
        KV_OPTIONS(&all_layers, it.path = KVMEM_PATH_NIXL_READ_STAGED, it.flags = KVMEM_TRANSFER_BY_LAYER,
                   it.notification = "read", it.notification_size = 4));
    RUN(read);
    GET(uint64_t, layers, kvmem_transfer_get_layers, read);
    CHECK_EQ(layers, 3);
    kv_side_check_moved(&fixture.side, &fixture.peer.model, &all_layers);
    kv_peer_expect_notification(&fixture.peer, "near", "read", 4);
}

TEST(transfers_that_share_an_arena_all_end) {
    OPENED(fixture, fixture);
    kvmem_transfer *reads[12];
    const kvmem_layout *near = fixture.side.layout, *far = fixture.peer.model.layout;
    for (size_t i = 0; i < NUM(reads); i++) { /* to the same bytes, from the same bytes */
        EXPECT_OK(kvmem_transfer_create(far, near, SMALL(READ), &reads[i], ERR));
    }
    for (size_t i = 0; i < NUM(reads); i++) EXPECT_OK(kvmem_transfer_submit(reads[i], ERR));
    for (size_t i = 0; i < NUM(reads); i++) {
        EXPECT_OK(kvmem_transfer_wait(reads[i], PATIENCE, ERR));
        kvmem_transfer_destroy(reads[i]);
    }
    kv_side_check_moved(&fixture.side, &fixture.peer.model, &all_layers);
}

TEST(a_cancelled_transfer_ends_and_runs_again) {
    OPENED(fixture, fixture);
    OWN(kvmem_transfer, read, kvmem_transfer_create, fixture.peer.model.layout, fixture.side.layout,
        SMALL(READ));
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
    OWN(kvmem_transfer, read, kvmem_transfer_create, fixture.peer.model.layout, fixture.side.layout,
        KV_OPTIONS(&all_layers, it.path = KVMEM_PATH_NIXL_READ_STAGED));
    RUN(read);
    kv_side_check_moved(&fixture.side, &fixture.peer.model, &all_layers);
    EXPECT_OK(kvmem_agent_invalidate_remote_metadata(fixture.agent, "far", ERR));
    EXPECT(KVMEM_STATUS_STALE, kvmem_transfer_submit(read, ERR));
}

TEST(a_peer_that_is_killed_in_the_middle_is_lost) {
    OPENED(fixture, fixture);
    const kvmem_layout *near = fixture.side.layout, *far = fixture.peer.model.layout;
    kvmem_transfer *both[2] = {NULL, NULL};
    EXPECT_OK(kvmem_transfer_create(far, near, SMALL(READ), &both[0], ERR));
    EXPECT_OK(kvmem_transfer_create(near, far, SMALL(WRITE), &both[1], ERR));
    kv_peer_crash_under(&fixture.peer, both, 3, PATIENCE);
    memcpy(fixture.side.expected, fixture.side.memory, fixture.side.size); /* whatever was read in time */
}

#if OVER_TCP
/* Over shared memory NIXL reads the memory of a frozen process. */
TEST(a_peer_that_answers_no_more_ends_a_run_in_time) {
    OPENED(fixture, fixture);
    OWN(kvmem_transfer, read, kvmem_transfer_create, fixture.peer.model.layout, fixture.side.layout,
        KV_OPTIONS(&all_layers, it.path = KVMEM_PATH_NIXL_READ_STAGED,
                   it.stall_timeout_ns = MILLISECONDS(20)));
    peer_freeze(&fixture.peer.process);
    EXPECT_OK(kvmem_transfer_submit(read, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_TIMED_OUT, "nothing was moved to or from agent 'far' for 20 ms",
                   kvmem_transfer_wait(read, PATIENCE, ERR));
    EXPECT(KVMEM_STATUS_BUSY, kvmem_transfer_submit(read, ERR)); /* NIXL still has the requests */
    peer_thaw(&fixture.peer.process);
    kvmem_status status = KVMEM_STATUS_BUSY;
    while (status == KVMEM_STATUS_BUSY) {
        sched_yield();
        status = kvmem_transfer_submit(read, ERR);
    }
    CHECK_EQ(status, KVMEM_STATUS_OK);
    EXPECT_OK(kvmem_transfer_wait(read, PATIENCE, ERR));
    kv_side_check_moved(&fixture.side, &fixture.peer.model, &all_layers);
}
#endif

TEST(what_can_not_be_staged_is_refused) {
    OPENED(fixture, fixture);
    const kvmem_layout *near = fixture.side.layout, *far = fixture.peer.model.layout;
    kvmem_transfer *transfer = NULL;
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "needs 32768 or more",
                   kvmem_transfer_create(far, near,
                                         KV_OPTIONS(&all_layers, it.path = KVMEM_PATH_NIXL_READ_STAGED,
                                                    it.staging_size = SMALL_ARENA - 1),
                                         &transfer, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "possible: NIXL read",
                   kvmem_transfer_create(far, near, SMALL(WRITE), &transfer, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "possible: memcpy",
                   kvmem_transfer_create(near, near, SMALL(READ), &transfer, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "KVMEM_TRANSFER_ZERO_COPY",
                   kvmem_transfer_create(far, near,
                                         KV_OPTIONS(&all_layers, it.path = KVMEM_PATH_NIXL_READ_STAGED,
                                                    it.flags = KVMEM_TRANSFER_ZERO_COPY),
                                         &transfer, ERR));
    CHECK(transfer == NULL);
}

int main(int argc, char **argv) {
    /* Set before NIXL is loaded; peers inherit it. */
    if (OVER_TCP) setenv("UCX_TLS", "tcp,self", 1);
    return test_main(argc, argv, test_registered());
}
