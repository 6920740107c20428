// SPDX-License-Identifier: Apache-2.0
// Verified transfers with a peer, with a NIXL that reports success and moves nothing, and the notifications
// of runs that fail.
#include "stand_in.h"

#define NUM_BLOCKS 64

static const kvmem_block_pair pairs[] = {{3, 5}, {8, 2}, {63, 0}};
static const uint32_t ids[] = {5, 2, 9};

/* Many short spans, so that tokens are read through staging memory. */
static kvmem_layout_config config_of(const char *order) {
    return WITH(kv_config(&kv_kinds[0]), it.num_layers = 64, it.num_blocks = NUM_BLOCKS, it.order = order);
}

/* Two agents of this process. */
typedef struct peers {
    kvmem_agent *near, *far;
    kv_side here, there;
    kvmem_layout *remote;
} peers;

static void peers_open(peers *peers, const char *order) {
    nixl_find_stand_in();
    peers->near = agent_open("near");
    peers->far = agent_open("far");
    kv_side_open(&peers->here, REF(config_of(KVMEM_ORDER_LAYER_SEPARATE)), peers->near, 1);
    kv_side_open(&peers->there, REF(config_of(order)), peers->far, 2);
    agents_introduce(peers->near, peers->far);
    peers->remote = layout_import(peers->near, peers->there.layout);
}

static void peers_close(peers *peers) {
    NIXL(nixl_sim_set_moving(0));
    DESTROYED(kvmem_layout, peers->remote);
    kv_side_close(&peers->here);
    kv_side_close(&peers->there);
    DESTROYED(kvmem_agent, peers->near);
    DESTROYED(kvmem_agent, peers->far);
}

static void set_bytes(kv_side *side, int value) {
    for (size_t i = 0; i < side->num_regions; i++)
        memset(side->memory + side->starts[i], value, kv_region_size(&side->config));
}

static nixl_sim_requests requests(void) { return NIXL(nixl_sim_get_requests()); }

/* Blocks, or tokens by tables; from the peer, or to it. */
static kvmem_transfer *create(const peers *peers, bool by_tables, bool reads, uint32_t method) {
    const kvmem_block_table from = {ids, NUM(ids), 1, 1}, to = {ids, NUM(ids), 0, 1};
    kv_job options = JOB(it.transfer.method = method, it.run.flags = KVMEM_SUBMIT_VERIFY);
    if (by_tables) {
        options.run.source_table = &from;
        options.run.destination_table = &to;
        options.run.num_tokens = 2 * config_of(0).page_size;
    } else {
        options.run.pairs = pairs;
        options.run.num_pairs = NUM(pairs);
    }
    return MADE(kvmem_transfer, kv_prepare, reads ? peers->remote : peers->here.layout,
                reads ? peers->here.layout : peers->remote, &options);
}

/* All pairs, or all tokens that are moved by tables. */
static void expect_all_mismatches(const kvmem_transfer *transfer, bool by_tables) {
    uint64_t found[64];
    GET(size_t, count, kvmem_transfer_get_mismatches, transfer, found, NUM(found));
    CHECK_EQ(count, by_tables ? 2 * config_of(0).page_size : NUM(pairs));
    for (size_t i = 0; i < count; i++) CHECK_EQ(found[i], i);
}

/* In each case the destination, the memory of the verification and the slots of both have the same bytes as
   before: those of the previous run. */
static void check_reads(peers *peers, bool by_tables, uint32_t method) {
    OWNED(kvmem_transfer) read = create(peers, by_tables, true, method);
    const char *const corrupt = by_tables ? "moved tokens are corrupt" : "3 of 3 moved blocks are corrupt";
    set_bytes(&peers->there, 7);
    set_bytes(&peers->here, 0);
    NIXL(nixl_sim_set_moving(UINT64_MAX));
    RUN(read);
    RUN(read);
    NIXL(nixl_sim_set_moving(0));
    RUN_ENDS(KVMEM_STATUS_CORRUPT, corrupt, read); /* though the blocks are the peer's */
    set_bytes(&peers->there, 8);
    RUN_ENDS(KVMEM_STATUS_CORRUPT, corrupt, read);
    expect_all_mismatches(read, by_tables);
    NIXL(nixl_sim_set_moving(UINT64_MAX));
    RUN(read);
}

TEST(reads_that_move_nothing_are_found) {
    static const uint32_t methods[] = {0, KVMEM_METHOD_NIXL, KVMEM_METHOD_NIXL_STAGED};
    static const char *const orders[] = {KVMEM_ORDER_FULLY_CONTIGUOUS, KVMEM_ORDER_LAYER_SEPARATE};
    for (size_t i = 0; i < NUM(orders); i++) {
        OPENED(peers, peers, orders[i]);
        for (size_t method = 0; method < NUM(methods); method++) {
            check_reads(&peers, false, methods[method]);
            check_reads(&peers, true, methods[method]);
        }
    }
}

/* What is read back is the same as before. */
TEST(writes_that_move_nothing_are_found) {
    OPENED(peers, peers, KVMEM_ORDER_FULLY_CONTIGUOUS);
    OWNED(kvmem_transfer) write = create(&peers, false, false, 0);
    set_bytes(&peers.here, 7);
    NIXL(nixl_sim_set_moving(UINT64_MAX));
    RUN(write);
    NIXL(nixl_sim_set_moving(0));
    RUN_ENDS(KVMEM_STATUS_CORRUPT, "3 of 3 moved blocks are corrupt", write);
    set_bytes(&peers.here, 8);
    RUN_ENDS(KVMEM_STATUS_CORRUPT, "3 of 3 moved blocks are corrupt", write);
    expect_all_mismatches(write, false);
}

/* Of the side that is memory of this process, by any method: the peer's blocks are not read for them. */
TEST(checksums_of_blocks_from_and_to_a_peer_are_returned) {
    static const uint32_t methods[] = {KVMEM_METHOD_NIXL, KVMEM_METHOD_NIXL_STAGED};
    OPENED(peers, peers, KVMEM_ORDER_FULLY_CONTIGUOUS);
    NIXL(nixl_sim_set_moving(UINT64_MAX));
    for (size_t i = 0; i < 2 * NUM(methods); i++) {
        const bool reads = i % 2 == 0;
        OWNED(kvmem_transfer) transfer =
            MADE(kvmem_transfer, kv_prepare, reads ? peers.remote : peers.here.layout,
                 reads ? peers.here.layout : peers.remote,
                 REF(JOB(it.run.pairs = pairs, it.run.num_pairs = NUM(pairs), it.run.flags = KVMEM_SUBMIT_CHECKSUM,
                         it.run.notification = "here", it.run.notification_size = 4, it.transfer.method = methods[i / 2])));
        const uint64_t sent = NIXL(nixl_sim_notifications_sent());
        RUN(transfer);
        CHECK_EQ(NIXL(nixl_sim_notifications_sent()), sent + 1);
        const kv_side *source = reads ? &peers.there : &peers.here;
        uint32_t found[NUM(pairs)], expected[NUM(pairs)], blocks[NUM(pairs)];
        for (size_t k = 0; k < NUM(pairs); k++) blocks[k] = pairs[k].source;
        EXPECT_OK(kvmem_layout_checksum(source->layout, blocks, NUM(pairs), KVMEM_TIMEOUT_FOREVER, expected, ERR));
        GET(size_t, count, kvmem_transfer_get_checksums, transfer, found, NUM(found));
        CHECK_EQ(count, NUM(pairs));
        CHECK_BYTES(found, expected, sizeof(found));
    }
}

/* Only the run itself moves its bytes, and a part of what verifies it. */
TEST(a_verification_of_which_a_part_was_not_moved_fails) {
    OPENED(peers, peers, KVMEM_ORDER_FULLY_CONTIGUOUS);
    OWNED(kvmem_transfer) read = create(&peers, true, true, KVMEM_METHOD_NIXL);
    set_bytes(&peers.there, 7);
    NIXL(nixl_sim_set_moving(UINT64_MAX));
    RUN(read);
    const uint64_t before = requests().posts;
    RUN(read);
    const uint64_t posts = requests().posts - before;
    CHECK(posts > 1);
    for (uint64_t moved = 0; moved < posts; moved++) {
        NIXL(nixl_sim_set_moving(moved));
        RUN_ENDS(KVMEM_STATUS_CORRUPT, "moved tokens are corrupt", read);
    }
    NIXL(nixl_sim_set_moving(posts));
    RUN(read);
}

static kvmem_transfer *create_notifying(const peers *peers, uint64_t flags, uint64_t timeout_ns) {
    return MADE(kvmem_transfer, kv_prepare, peers->here.layout, peers->remote,
                REF(JOB(it.run.pairs = pairs, it.run.num_pairs = NUM(pairs), it.run.flags = flags,
                            it.run.run_timeout_ns = timeout_ns, it.run.notification = "here", it.run.notification_size = 4)));
}

TEST(the_peer_is_notified_after_the_comparison) {
    OPENED(peers, peers, KVMEM_ORDER_FULLY_CONTIGUOUS);
    OWNED(kvmem_transfer) write = create_notifying(&peers, KVMEM_SUBMIT_VERIFY, 0);
    const uint64_t before = NIXL(nixl_sim_notifications_sent());
    set_bytes(&peers.here, 7);
    RUN_ENDS(KVMEM_STATUS_CORRUPT, "moved blocks are corrupt", write);
    CHECK_EQ(NIXL(nixl_sim_notifications_sent()), before);
    NIXL(nixl_sim_set_moving(UINT64_MAX));
    NIXL(nixl_sim_set_pending(NIXL_SIM_PENDING_READS)); /* what reads the blocks back */
    EXPECT_OK(kvmem_transfer_submit(write, NULL, ERR));
    AWAIT(requests().in_flight > 0);
    CHECK_EQ(NIXL(nixl_sim_notifications_sent()), before);
    NIXL(nixl_sim_set_pending(NIXL_SIM_PENDING_NONE));
    EXPECT_OK(kvmem_transfer_wait(write, PATIENCE, ERR));
    CHECK_EQ(NIXL(nixl_sim_notifications_sent()), before + 1);
}

/* Its requests complete later. */
TEST(a_run_that_was_reported_as_timed_out_notifies_nobody) {
    OPENED(peers, peers, KVMEM_ORDER_FULLY_CONTIGUOUS);
    OWNED(kvmem_transfer) write = create_notifying(&peers, 0, MILLISECONDS(1));
    const uint64_t before = NIXL(nixl_sim_notifications_sent());
    NIXL(nixl_sim_set_pending(NIXL_SIM_PENDING_ALL));
    run_late(write);
    CHECK_EQ(requests().in_flight, 1);
    NIXL(nixl_sim_set_pending(NIXL_SIM_PENDING_NONE));
    const kvmem_submit_options unlimited = OPTIONS(kvmem_submit_options, it.pairs = pairs,
                                                   it.num_pairs = NUM(pairs), it.run_timeout_ns = KVMEM_TIMEOUT_FOREVER);
    kvmem_status status = KVMEM_STATUS_BUSY;
    while (status == KVMEM_STATUS_BUSY) status = kvmem_transfer_submit(write, &unlimited, ERR);
    CHECK_EQ(status, KVMEM_STATUS_OK);
    EXPECT_OK(kvmem_transfer_wait(write, PATIENCE, ERR));
    CHECK_EQ(NIXL(nixl_sim_notifications_sent()), before); /* those pairs have no notification */
}
