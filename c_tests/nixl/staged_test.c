// SPDX-License-Identifier: Apache-2.0
// Transfers with a peer through the arena of an agent: when they are selected, every byte, several that share
// it, and how they end if the peer dies, stops responding or is invalidated. staged_tcp_test.c runs the same
// over TCP.
#include "arena.h"

#ifndef OVER_TCP
#define OVER_TCP 0
#endif

KV_PEER_ROLE

/* Options: all of it through a small arena, in many chunks. */
#define SMALL()                                                                                      \
    KV_JOB(&all_layers, it.transfer.method = KVMEM_METHOD_NIXL_STAGED, it.transfer.staging_size = SMALL_ARENA)

typedef kv_meeting fixture;
#define fixture_close kv_meeting_close
/* The layers of a block are separate on the far side, and in separate regions on the near side. */
static void fixture_open(fixture *fixture) { arena_open(fixture, &kv_kinds[1], &kv_kinds[0], "far", NULL); }

/* The costs of requests are measured per peer, and this peer is new. */
TEST(rows_are_read_and_written_by_the_cheaper_path) {
    CLEANUP(fixture_close) fixture fixture;
    arena_open(&fixture, &kv_kinds[1], &kv_kinds[0], "new", NULL);
    CHECK_EQ(arena_read(&fixture, KV_JOB(&all_layers)).method, KVMEM_METHOD_NIXL_STAGED);
    CHECK_EQ(arena_write(&fixture, KV_JOB(&all_layers)).method, KVMEM_METHOD_NIXL_STAGED);
}

/* Values alone are not contiguous: a read discards the keys between them, and a write leaves them out. */
TEST(bytes_between_rows_are_read_and_never_written) {
    OPENED(fixture, fixture);
    const char *const parts[] = {"bytes in excess", "NIXL, estimated", NULL};
    arena_check_values(&fixture, KVMEM_METHOD_NIXL_STAGED, parts);
}

TEST(contiguous_blocks_need_no_arena) {
    CLEANUP(fixture_close) fixture fixture;
    arena_open(&fixture, &kv_kinds[0], &kv_kinds[0], "far", NULL);
    const kv_move few = KV_MOVE(3, {0, 0}, {1, 1}, {2, 2}, {7, 9});
    CHECK_EQ(kv_run(fixture.peer.model.layout, fixture.side.layout, &few).method, KVMEM_METHOD_NIXL);
    kv_side_check_moved(&fixture.side, &fixture.peer.model, &few);
}

/* More chunks than slots, with slots that end within rows. */
TEST(small_arenas_move_every_byte_between_all_kinds) {
    for (size_t here = 0; here < KV_NUM_KINDS; here++) {
        CLEANUP(fixture_close) fixture fixture;
        arena_open(&fixture, &kv_kinds[here], &kv_kinds[(here + 1) % KV_NUM_KINDS], "far", NULL);
        const kvmem_transfer_info info = arena_read(&fixture, SMALL());
        CHECK_EQ(info.method, KVMEM_METHOD_NIXL_STAGED);
        CHECK(info.num_requests > 300); /* of a page each */
        arena_write(&fixture, SMALL());
    }
}

TEST(layers_are_staged_one_by_one_and_the_peer_is_notified) {
    OPENED(fixture, fixture);
    arena_check_layers(&fixture, *KV_JOB(&all_layers, it.transfer.method = KVMEM_METHOD_NIXL_STAGED));
}

TEST(transfers_that_share_an_arena_all_complete) {
    OPENED(fixture, fixture);
    arena_check_many(&fixture, 12, SMALL());
}

TEST(a_cancelled_transfer_ends_and_runs_again) {
    OPENED(fixture, fixture);
    arena_check_cancelled(&fixture, SMALL());
}

TEST(a_transfer_with_an_invalidated_peer_is_stale) {
    OPENED(fixture, fixture);
    arena_check_stale(&fixture, KV_JOB(&all_layers, it.transfer.method = KVMEM_METHOD_NIXL_STAGED));
}

TEST(a_peer_killed_during_a_transfer_is_lost) {
    OPENED(fixture, fixture);
    arena_check_killed(&fixture, 3, SMALL(), SMALL());
}

#if OVER_TCP
/* Over shared memory NIXL reads the memory of a stopped process. */
TEST(a_run_with_an_unresponsive_peer_ends_in_time) {
    OPENED(fixture, fixture);
    OWN(kvmem_transfer, read, kv_prepare, fixture.peer.model.layout, fixture.side.layout,
        KV_JOB(&all_layers, it.transfer.method = KVMEM_METHOD_NIXL_STAGED,
                   it.transfer.stall_timeout_ns = MILLISECONDS(20)));
    peer_freeze(&fixture.peer.process);
    RUN_ENDS(KVMEM_STATUS_TIMED_OUT, "with agent 'far': nothing was moved for 20 ms", read);
    EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "the last run has ended and its memory may still be in use",
                   kvmem_transfer_submit(read, NULL, ERR)); /* NIXL still has the requests */
    peer_thaw(&fixture.peer.process);
    run_in_time(read);
    kv_side_check_moved(&fixture.side, &fixture.peer.model, &all_layers);
}

TEST(a_run_with_an_unresponsive_peer_ends_at_its_deadline) {
    OPENED(fixture, fixture);
    arena_check_deadline(&fixture, SMALL(), SMALL());
}
#endif

TEST(transfers_that_cannot_be_staged_fail) {
    OPENED(fixture, fixture);
    const kvmem_layout *near = fixture.side.layout, *far = fixture.peer.model.layout;
    const kv_job staged = *KV_JOB(&all_layers, it.transfer.method = KVMEM_METHOD_NIXL_STAGED);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "needs 32768 or more", kv_prepare, far, near,
           REF(WITH(staged, it.transfer.staging_size = SMALL_ARENA - 1)));
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "possible: NIXL; NIXL, staged; NIXL, served", kv_prepare, far, near,
           KV_JOB(&all_layers, it.transfer.method = KVMEM_METHOD_MEMCPY));
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "possible: memcpy", kv_prepare, near, near, SMALL());
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "KVMEM_TRANSFER_ZERO_COPY", kv_prepare, far, near,
           REF(WITH(staged, it.transfer.flags = KVMEM_TRANSFER_ZERO_COPY)));
}

int main(int argc, char **argv) {
    /* Set before NIXL is loaded; peers inherit it. */
    if (OVER_TCP) setenv("UCX_TLS", "tcp,self", 1);
    return test_main(argc, argv, test_registered());
}
