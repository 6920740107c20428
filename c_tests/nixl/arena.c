// SPDX-License-Identifier: Apache-2.0
// Each case reads from the peer, and compares every byte.
#include "arena.h"

#define NUM_BLOCKS 500

static kvmem_block_pair backwards[NUM_BLOCKS - 7];
const kv_move all_layers = {backwards, NUM(backwards), 0, 0, 3};
const kv_outers values = {1, 1, 1};

kvmem_layout_config arena_config(const kv_kind *kind) {
    for (uint32_t i = 0; i < NUM(backwards); i++) backwards[i] = (kvmem_block_pair){i, NUM_BLOCKS - 1 - i};
    return WITH(kv_config(kind), it.num_blocks = NUM_BLOCKS, it.inner_dim = 64);
}

void arena_open(kv_meeting *fixture, const kv_kind *here, const kv_kind *there, const char *peer,
                const kvmem_serve_options *serve) {
    kv_meeting_open_served(fixture, "near", peer, REF(arena_config(here)), REF(arena_config(there)), serve);
}

static void check_read(kv_meeting *fixture) {
    kv_side_check_moved(&fixture->side, &fixture->peer.model, &all_layers);
}

kvmem_transfer_info arena_read(kv_meeting *fixture, const kv_job *options) {
    const kvmem_transfer_info info = kv_run_with(fixture->peer.model.layout, fixture->side.layout, options);
    check_read(fixture);
    return info;
}

/* Runs once no run that has ended writes to the destination any more. */
static void run_when_free(const kvmem_layout *source, const kvmem_layout *destination,
                          const kv_job *options) {
    OWN(kvmem_transfer, transfer, kv_prepare, source, destination, options);
    CHECK_EQ(submit_when_free(transfer), KVMEM_STATUS_OK);
    EXPECT_OK(kvmem_transfer_wait(transfer, PATIENCE, ERR));
}

void arena_read_when_free(kv_meeting *fixture, const kv_job *options) {
    run_when_free(fixture->peer.model.layout, fixture->side.layout, options);
    check_read(fixture);
}

static void check_written(kv_meeting *fixture) {
    kv_expect_moved(&fixture->peer.model, &fixture->side, &all_layers);
    kv_peer_check(&fixture->peer);
}

kvmem_transfer_info arena_write(kv_meeting *fixture, const kv_job *options) {
    const kvmem_transfer_info info = kv_run_with(fixture->side.layout, fixture->peer.model.layout, options);
    check_written(fixture);
    return info;
}

static kvmem_transfer *create_read(const kv_meeting *fixture, const kv_job *options) {
    return MADE(kvmem_transfer, kv_prepare, fixture->peer.model.layout, fixture->side.layout,
                options);
}

void arena_check_values(kv_meeting *fixture, uint32_t method, const char *const *parts) {
    kv_job options = WITH(kv_outers_job(&all_layers, values), it.transfer.method = method);
    OWNED(kvmem_transfer) transfer = create_read(fixture, &options);
    kvmem_compared_method explained;
    const char *text = kv_explained(transfer, &explained);
    CHECK_EQ(explained.method, method);
    for (; *parts != NULL; parts++) CHECK_HAS(text, *parts);
    RUN(transfer);
    kv_expect_outers_moved(&fixture->side, &fixture->peer.model, &all_layers, values);
    kv_side_check(&fixture->side);
    CHECK_EQ(kv_run_with(fixture->side.layout, fixture->peer.model.layout, &options).method, method);
    kv_expect_outers_moved(&fixture->peer.model, &fixture->side, &all_layers, values);
    kv_peer_check(&fixture->peer);
}

void arena_check_layers(kv_meeting *fixture, kv_job options) {
    OWN(kvmem_queue, queue, kvmem_queue_create);
    options.transfer.flags = KVMEM_TRANSFER_BY_LAYER;
    options.transfer.queue = queue;
    options.transfer.layers_per_completion = 1;
    options.run.notification = "read";
    options.run.notification_size = 4;
    OWNED(kvmem_transfer) read = create_read(fixture, &options);
    RUN(read);
    const uint64_t layers = transfer_info(read).layers_moved;
    CHECK_EQ(layers, 3);
    end_after_layers(queue, 1, 3);
    check_read(fixture);
    /* The only notification that the caller gets: messages of served requests are not mixed with it. */
    kv_peer_expect_notification(&fixture->peer, "near", "read", 4);
}

void arena_check_many(kv_meeting *fixture, size_t count, const kv_job *options) {
    kvmem_transfer *reads[16]; /* to the same bytes, from the same bytes */
    CHECK(count <= NUM(reads));
    for (size_t i = 0; i < count; i++) reads[i] = create_read(fixture, options);
    for (size_t i = 0; i < count; i++) EXPECT_OK(kvmem_transfer_submit(reads[i], NULL, ERR));
    for (size_t i = 0; i < count; i++) {
        EXPECT_OK(kvmem_transfer_wait(reads[i], PATIENCE, ERR));
        kvmem_transfer_destroy(reads[i]);
    }
    check_read(fixture);
}

void arena_check_cancelled(kv_meeting *fixture, const kv_job *options) {
    OWNED(kvmem_transfer) read = create_read(fixture, options);
    kv_cancel_and_run(read);
    check_read(fixture);
}

void arena_check_stale(kv_meeting *fixture, const kv_job *options) {
    OWNED(kvmem_transfer) read = create_read(fixture, options);
    RUN(read);
    check_read(fixture);
    EXPECT_OK(kvmem_agent_invalidate_remote_metadata(fixture->agent, "far", NULL, ERR));
    EXPECT(KVMEM_STATUS_STALE, kvmem_transfer_submit(read, NULL, ERR));
}

void arena_check_killed(kv_meeting *fixture, unsigned rounds, const kv_job *read,
                        const kv_job *write) {
    kvmem_transfer *const both[2] = {
        create_read(fixture, read),
        MADE(kvmem_transfer, kv_prepare, fixture->side.layout, fixture->peer.model.layout, write)};
    kv_peer_crash_under(&fixture->peer, both, rounds, PATIENCE);
    /* Bytes that were read before the end stay. */
    memcpy(fixture->side.expected, fixture->side.memory, fixture->side.size);
}

static void run_late(kv_meeting *fixture, const kvmem_layout *source, const kvmem_layout *destination,
                     kv_job options) {
    OWN(kvmem_queue, queue, kvmem_queue_create);
    options.run.run_timeout_ns = MILLISECONDS(50);
    options.run.user_data = 50;
    options.transfer.queue = queue;
    options.transfer.flags |= KVMEM_TRANSFER_REPORT_RELEASE;
    OWN(kvmem_transfer, limited, kv_prepare, source, destination, &options);
    peer_freeze(&fixture->peer.process);
    RUN_ENDS(KVMEM_STATUS_TIMED_OUT, "with agent 'far' was not complete after 50 ms", limited);
    CHECK_HAS(test_last_message(), "at least 0 of ");
    const kvmem_completion end = next_completion(queue);
    CHECK_EQ(end.status, KVMEM_STATUS_TIMED_OUT);
    peer_thaw(&fixture->peer.process);
    if (!end.released) expect_release(queue, 50, KVMEM_STATUS_OK);
}

void arena_check_deadline(kv_meeting *fixture, const kv_job *read,
                          const kv_job *write) {
    const kvmem_layout *near = fixture->side.layout, *far = fixture->peer.model.layout;
    run_late(fixture, far, near, *read);
    arena_read_when_free(fixture, read);
    run_late(fixture, near, far, *write);
    run_when_free(near, far, write);
    check_written(fixture);
}
