// SPDX-License-Identifier: Apache-2.0
// Served transfers of so many separate spans that they need several requests to the owner: every byte,
// layers, verification, and how they end if they are cancelled or the owner dies between two requests.
#include "crc.h"
#include "harness.h"

KV_PEER_ROLE

/* A request names at most about 21,800 spans. In reverse order no two blocks are one span. */
#define NUM_BLOCKS 70000
#define NUM_REQUESTS "4"
/* Blocks that the second request moves, and the third: requests are in the order of this side's blocks. */
enum { OF_SECOND = NUM_BLOCKS / 2, OF_THIRD = NUM_BLOCKS * 3 / 4 };
/* Chunks of one page, so that a request takes hundreds of them. */
#define SMALL_ARENA (8 * 4096)

static kvmem_block_pair backwards[NUM_BLOCKS];
static const kv_move all_layers = {backwards, NUM_BLOCKS, 0, 0, 2};

#define SERVED() SERVED_WITH((void)0)
#define SERVED_WITH(...) KV_JOB(&all_layers, it.transfer.method = KVMEM_METHOD_NIXL_SERVED, __VA_ARGS__)

typedef kv_meeting fixture;
#define fixture_close kv_meeting_close

static kvmem_layout_config config_of(const kv_kind *kind) {
    return WITH(kv_config(kind), it.num_blocks = NUM_BLOCKS, it.num_layers = 2, it.page_size = 1,
                it.inner_dim = 8);
}

static void open_with(fixture *fixture, const kv_kind *here, const kv_kind *there, uint64_t arena_size) {
    for (uint32_t i = 0; i < NUM_BLOCKS; i++) backwards[i] = (kvmem_block_pair){i, NUM_BLOCKS - 1 - i};
    kv_meeting_open_served(fixture, "near", "far", REF(config_of(here)), REF(config_of(there)),
                           REF(OPTIONS(kvmem_serve_options, it.flags = KVMEM_SERVE_WRITE,
                                       it.staging_size = arena_size)));
}

static void fixture_open(fixture *fixture) { open_with(fixture, &kv_kinds[2], &kv_kinds[0], SMALL_ARENA); }

static kvmem_transfer *create_read(const fixture *fixture, const kv_job *options) {
    return MADE(kvmem_transfer, kv_prepare, fixture->peer.model.layout, fixture->side.layout,
                options);
}

static void check_read(fixture *fixture) {
    kv_side_check_moved(&fixture->side, &fixture->peer.model, &all_layers);
}

static void check_requests(const kvmem_transfer *transfer, const char *count) {
    kvmem_compared_method explained;
    char expected[64];
    snprintf(expected, sizeof(expected), "need %s requests to the owner, one after the other", count);
    CHECK_HAS(kv_explained(transfer, &explained), expected);
}

/* Blocks are the outermost axis of the first kind, and not of the others. */
TEST(every_byte_moves_in_both_directions) {
    for (size_t here = 0; here < KV_NUM_KINDS; here++) {
        CLEANUP(fixture_close) fixture fixture;
        open_with(&fixture, &kv_kinds[here], &kv_kinds[(here + 1) % KV_NUM_KINDS], 0);
        const kvmem_layout *near = fixture.side.layout, *far = fixture.peer.model.layout;
        OWNED(kvmem_transfer) read = create_read(&fixture, SERVED());
        check_requests(read, NUM_REQUESTS);
        RUN(read);
        check_read(&fixture);
        kv_fill(fixture.side.memory, fixture.side.size, 99);
        memcpy(fixture.side.expected, fixture.side.memory, fixture.side.size);
        CHECK_EQ(kv_run_with(near, far, SERVED()).method, KVMEM_METHOD_NIXL_SERVED);
        kv_expect_moved(&fixture.peer.model, &fixture.side, &all_layers);
        kv_peer_check(&fixture.peer);
    }
}

/* Whether a block of this side has the bytes that it is read from, in the second outer slot of a layer. */
static bool has_arrived(const fixture *fixture, uint32_t block, uint64_t layer) {
    const kv_side *far = &fixture->peer.model;
    const uint64_t offset = kv_offset(&far->config, NUM_BLOCKS - 1 - block, layer, 1);
    const unsigned char *source = far->expected + far->starts[0] + offset;
    const volatile unsigned char *destination = kv_side_piece(&fixture->side, block, layer, 1);
    for (size_t i = 0; i < kv_piece_size(&far->config); i++)
        if (destination[i] != source[i]) return false;
    return true;
}

TEST(layers_take_their_requests_in_order_and_the_peer_is_notified_once) {
    OPENED(fixture, fixture);
    OWNED(kvmem_transfer) read =
        create_read(&fixture, SERVED_WITH(it.transfer.flags = KVMEM_TRANSFER_BY_LAYER,
                                          it.run.notification = "read",
                                          it.run.notification_size = 4));
    check_requests(read, "8");
    EXPECT_OK(kvmem_transfer_submit(read, NULL, ERR));
    EXPECT_OK(kvmem_transfer_wait_layers(read, 1, PATIENCE, ERR));
    for (uint32_t block = 0; block < NUM_BLOCKS; block++) CHECK(has_arrived(&fixture, block, 0));
    EXPECT_OK(kvmem_transfer_wait(read, PATIENCE, ERR));
    check_read(&fixture);
    kv_peer_expect_notification(&fixture.peer, "near", "read", 4);
}

typedef void step(kv_meeting *);

/* Submits the read until `stop` was called after a block of the second request had arrived, and before one of
   the third. A run may be too fast for that if this thread is not scheduled. */
static void submit_until_second(fixture *fixture, kvmem_transfer *read, step *stop, step *resume) {
    for (;;) {
        kv_fill(fixture->side.memory, fixture->side.size, 99);
        memcpy(fixture->side.expected, fixture->side.memory, fixture->side.size);
        EXPECT_OK(kvmem_transfer_submit(read, NULL, ERR));
        while (!has_arrived(fixture, OF_SECOND, 1)) sched_yield();
        stop(fixture);
        if (!has_arrived(fixture, OF_THIRD, 1)) return;
        resume(fixture);
        EXPECT_OK(kvmem_transfer_wait(read, PATIENCE, ERR));
    }
}

static void freeze_owner(fixture *fixture) { peer_freeze(&fixture->peer.process); }
static void thaw_owner(fixture *fixture) { peer_thaw(&fixture->peer.process); }

/* What has been read stays in the destination. */
static void keep_what_was_read(fixture *fixture) {
    memcpy(fixture->side.expected, fixture->side.memory, fixture->side.size);
}

TEST(an_owner_that_dies_after_the_first_request_is_lost) {
    OPENED(fixture, fixture);
    OWNED(kvmem_transfer) read = create_read(&fixture, SERVED());
    submit_until_second(&fixture, read, freeze_owner, thaw_owner);
    kv_peer_crash(&fixture.peer);
    EXPECT(KVMEM_STATUS_PEER_LOST, kvmem_transfer_wait(read, PATIENCE, ERR));
    const char *message = test_last_message();
    CHECK(strstr(message, "request 2 of " NUM_REQUESTS " to the owner") != NULL ||
          strstr(message, "request 3 of " NUM_REQUESTS " to the owner") != NULL);
    /* The notification of a later run to the owner fails. The message has the reason once. */
    kvmem_status status = KVMEM_STATUS_BUSY;
    while (status == KVMEM_STATUS_BUSY) status = submit_and_wait(read, PATIENCE);
    CHECK_EQ(status, KVMEM_STATUS_PEER_LOST);
    const char *lost = strstr(test_last_message(), "agent 'far' is lost");
    CHECK(lost != NULL && strstr(lost + 1, "agent 'far' is lost") == NULL);
    keep_what_was_read(&fixture);
}

TEST(a_frozen_owner_ends_the_run_in_time_and_serves_the_next_one) {
    OPENED(fixture, fixture);
    OWNED(kvmem_transfer) read = create_read(&fixture,
                                             SERVED_WITH(it.transfer.stall_timeout_ns = SECONDS(1)));
    submit_until_second(&fixture, read, freeze_owner, thaw_owner);
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait(read, PATIENCE, ERR));
    CHECK_HAS(test_last_message(), "nothing was moved for 1000 ms");
    CHECK_HAS(test_last_message(), " of " NUM_REQUESTS " to the owner");
    peer_thaw(&fixture.peer.process);
    keep_what_was_read(&fixture);
    OWNED(kvmem_transfer) again = create_read(&fixture, SERVED());
    CHECK_EQ(submit_when_free(again), KVMEM_STATUS_OK);
    EXPECT_OK(kvmem_transfer_wait(again, PATIENCE, ERR));
    check_read(&fixture);
}

static kvmem_transfer *to_cancel;
static void cancel(fixture *fixture) {
    (void)fixture;
    EXPECT_OK(kvmem_transfer_cancel(to_cancel, ERR));
}
static void ignore(fixture *fixture) { (void)fixture; }

TEST(a_transfer_is_cancelled_after_its_first_request_and_runs_again) {
    OPENED(fixture, fixture);
    OWNED(kvmem_transfer) read = create_read(&fixture, SERVED());
    to_cancel = read;
    kv_cancel_and_run(read); /* early */
    check_read(&fixture);
    submit_until_second(&fixture, read, cancel, ignore);
    EXPECT(KVMEM_STATUS_CANCELLED, kvmem_transfer_wait(read, PATIENCE, ERR));
    CHECK(!has_arrived(&fixture, NUM_BLOCKS - 1, 1)); /* the last request did not begin */
    RUN(read);
    check_read(&fixture);
}

TEST(the_blocks_of_all_requests_are_verified) {
    OPENED(fixture, fixture);
    static uint32_t checksums[NUM_BLOCKS];
    for (size_t i = 0; i < NUM_BLOCKS; i++)
        checksums[i] = crc_of_block(&fixture.peer.model, backwards[i].source, 0, 2);
    for (int i = 0; i < 2; i++) {
        checksums[0] += (uint32_t)i; /* of the last block that is moved */
        OWNED(kvmem_transfer) read = create_read(&fixture, SERVED_WITH(it.run.checksums = checksums));
        RUN_ENDS(i == 0 ? KVMEM_STATUS_OK : KVMEM_STATUS_CORRUPT, "", read);
    }
    check_read(&fixture);
}

TEST(transfers_of_several_requests_share_an_owner) {
    OPENED(fixture, fixture);
    kvmem_transfer *reads[3];
    for (size_t i = 0; i < NUM(reads); i++) reads[i] = create_read(&fixture, SERVED());
    for (size_t i = 0; i < NUM(reads); i++) EXPECT_OK(kvmem_transfer_submit(reads[i], NULL, ERR));
    for (size_t i = 0; i < NUM(reads); i++) {
        EXPECT_OK(kvmem_transfer_wait(reads[i], PATIENCE, ERR));
        kvmem_transfer_destroy(reads[i]);
    }
    check_read(&fixture);
}
