// SPDX-License-Identifier: Apache-2.0
// Served transfers with a NIXL that changes bytes on the way, or reports success and moves nothing.
#include "stand_in.h"

#define NUM_BLOCKS 64
#define CHUNK (8 << 10) /* more than a control block, and less than a transfer */

static const kvmem_block_pair pairs[] = {{3, 5}, {8, 2}, {63, 0}, {7, 9}};
static const uint32_t ids[] = {5, 2, 9};

static kvmem_layout_config config_of(const char *order) {
    return WITH(kv_config(&kv_kinds[0]), it.num_layers = 64, it.num_blocks = NUM_BLOCKS, it.order = order,
                it.page_size = 8, it.num_heads = 2);
}

/* An agent whose layout is served, and one that has imported it, in one process. */
typedef struct peers {
    kvmem_agent *near, *far;
    kv_side here, there;
    kvmem_layout *remote;
} peers;

static void peers_open_with(peers *peers, const char *order, uint64_t arena_size) {
    nixl_find_stand_in();
    NIXL(nixl_sim_set_routing(1));
    NIXL(nixl_sim_set_moving(UINT64_MAX));
    peers->near = agent_open("near");
    peers->far = agent_open("far");
    kv_side_open(&peers->here, REF(config_of(KVMEM_ORDER_LAYER_SEPARATE)), peers->near, 1);
    kv_side_open(&peers->there, REF(config_of(order)), peers->far, 2);
    EXPECT_OK(kvmem_layout_serve(peers->there.layout,
                                 REF(OPTIONS(kvmem_serve_options, it.flags = KVMEM_SERVE_WRITE,
                                             it.staging_size = arena_size)),
                                 ERR));
    agents_introduce(peers->near, peers->far);
    peers->remote = layout_import(peers->near, peers->there.layout);
}

static void peers_open(peers *peers, const char *order) { peers_open_with(peers, order, 0); }

static void peers_close(peers *peers) {
    DESTROYED(kvmem_layout, peers->remote);
    kv_side_close(&peers->here);
    kv_side_close(&peers->there);
    DESTROYED(kvmem_agent, peers->near);
    DESTROYED(kvmem_agent, peers->far);
    NIXL(nixl_sim_set_routing(0));
}

TEST(staging_memory_that_is_too_small_is_named_by_its_option) {
    nixl_find_stand_in();
    OWNED(kvmem_agent) agent = agent_open("owner");
    OPENED(kv_side, side, REF(config_of(KVMEM_ORDER_LAYER_SEPARATE)), agent, 1);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "staging_size is 4096 bytes",
                   kvmem_layout_serve(side.layout, REF(OPTIONS(kvmem_serve_options, it.staging_size = 4096)), ERR));
}

/* Blocks, or some heads of tokens by tables; from the owner, or to it. */
static kvmem_transfer *create(const peers *peers, bool by_tables, bool reads, uint32_t method,
                              uint64_t flags) {
    const kvmem_block_table from = {ids, NUM(ids), 1, 1}, to = {ids, NUM(ids), 0, 1};
    kv_job options = JOB(it.transfer.method = method, it.run.flags = flags);
    if (by_tables) {
        options.run.source_table = &from;
        options.run.destination_table = &to;
        options.run.num_tokens = 2 * config_of(0).page_size;
        options.transfer.source_head = 1;
        options.transfer.num_heads = 1;
    } else {
        options.run.pairs = pairs;
        options.run.num_pairs = NUM(pairs);
    }
    return MADE(kvmem_transfer, kv_prepare, reads ? peers->remote : peers->here.layout,
                reads ? peers->here.layout : peers->remote, &options);
}

/* How many blocks of a side are read or written, by runs and by sessions of peers. */
static size_t num_accesses(const kv_side *side) {
    static uint32_t blocks[NUM_BLOCKS];
    for (uint32_t i = 0; i < NUM_BLOCKS; i++) blocks[i] = i;
    GET(size_t, count, kvmem_layout_get_accesses, side->layout, blocks, NUM(blocks), NULL, 0);
    return count;
}

/* Gives a side bytes that it has not had before: a slot has those of any run before, and bytes that are right
   in spite of a skipped request are no fault. The owner reads ahead of a run, also of one that a damaged chunk
   has ended, until its session ends. */
static void renew(const kv_side *side) {
    static unsigned char value;
    value++;
    AWAIT(num_accesses(side) == 0);
    for (size_t i = 0; i < side->num_regions; i++)
        memset(side->memory + side->starts[i], value, kv_region_size(&side->config));
}

/* A run that was not to be verified compares nothing but chunks. Otherwise the blocks are compared, and something has not arrived. */
static void expect_mismatches(const kvmem_transfer *transfer, bool by_tables, bool is_verified) {
    uint64_t found[64];
    GET(size_t, count, kvmem_transfer_get_mismatches, transfer, found, NUM(found));
    CHECK(is_verified ? count > 0 : count == 0);
    for (size_t i = 0; i < count; i++) {
        CHECK(found[i] < (by_tables ? 2 * config_of(0).page_size : NUM(pairs)));
        CHECK(i == 0 || found[i] > found[i - 1]);
    }
}

static void check_spoiled(const peers *peers, bool by_tables, bool reads, uint64_t flags) {
    /* A verified transfer is served without a request for it. */
    OWNED(kvmem_transfer) transfer =
        create(peers, by_tables, reads, flags == KVMEM_SUBMIT_VERIFY ? 0 : KVMEM_METHOD_NIXL_SERVED, flags);
    kvmem_compared_method explained;
    const char *text = kv_explained(transfer, &explained);
    CHECK_EQ(explained.method, KVMEM_METHOD_NIXL_SERVED);
    if (flags == KVMEM_SUBMIT_VERIFY)
        CHECK_HAS(text, "the owner serves the transfer, and so computes checksums");
    RUN(transfer);
    for (int how = NIXL_SIM_SPOIL_DAMAGE; how <= NIXL_SIM_SPOIL_SKIP; how++) {
        renew(reads ? &peers->there : &peers->here);
        NIXL(nixl_sim_spoil_next(how, CHUNK));
        RUN_ENDS(KVMEM_STATUS_CORRUPT, "its bytes were damaged on the way, were not moved", transfer);
        expect_mismatches(transfer, by_tables, flags != 0);
        NIXL(nixl_sim_spoil_next(NIXL_SIM_SPOIL_NONE, 0));
    }
    RUN(transfer);
}

static void check_order(const char *order, bool reads) {
    OPENED(peers, peers, order);
    for (int by_tables = 0; by_tables < 2; by_tables++) {
        check_spoiled(&peers, by_tables, reads, 0);
        check_spoiled(&peers, by_tables, reads, KVMEM_SUBMIT_VERIFY);
    }
}

TEST(chunks_that_are_spoiled_on_the_way_are_found) {
    for (int reads = 0; reads < 2; reads++) {
        check_order(KVMEM_ORDER_FULLY_CONTIGUOUS, reads);
        check_order(KVMEM_ORDER_LAYER_SEPARATE, reads);
    }
}

/* Nothing is read twice. */
TEST(a_verified_transfer_of_a_served_layout_moves_its_bytes_once) {
    OPENED(peers, peers, KVMEM_ORDER_FULLY_CONTIGUOUS);
    for (int reads = 0; reads < 2; reads++) {
        OWNED(kvmem_transfer) transfer = create(&peers, false, reads, 0, KVMEM_SUBMIT_VERIFY);
        RUN(transfer);
        const uint64_t before = NIXL(nixl_sim_get_requests()).bytes;
        RUN(transfer);
        const uint64_t block = kv_block_stride(&peers.there.config);
        const uint64_t moved = NIXL(nixl_sim_get_requests()).bytes - before;
        CHECK(moved >= NUM(pairs) * block);
        CHECK(moved < 2 * NUM(pairs) * block);
    }
}

/* Six runs have the memory for copies of control blocks that runs with one peer may have. A further one waits
   as long as they progress, and ends if they do not. */
#define MANY 7
#define STALL SECONDS(1)

static kvmem_transfer *create_one_of_many(const peers *peers, uint64_t index, uint64_t stall_timeout) {
    kvmem_block_pair own[NUM_BLOCKS / MANY];
    for (uint64_t i = 0; i < NUM(own); i++) own[i].source = own[i].destination = index * NUM(own) + i;
    return MADE(kvmem_transfer, kv_prepare, peers->remote, peers->here.layout,
                REF(JOB(it.run.pairs = own, it.run.num_pairs = NUM(own),
                        it.transfer.method = KVMEM_METHOD_NIXL_SERVED,
                        it.transfer.stall_timeout_ns = stall_timeout)));
}

static void check_many(bool progresses) {
    CLEANUP(peers_close) peers peers;
    peers_open_with(&peers, KVMEM_ORDER_FULLY_CONTIGUOUS, 32 << 10); /* so that a run has many requests */
    kvmem_transfer *transfers[MANY];
    for (uint64_t i = 0; i < MANY; i++)
        transfers[i] = create_one_of_many(&peers, i, i + 1 < MANY ? PATIENCE : STALL);
    NIXL(nixl_sim_set_pending(NIXL_SIM_PENDING_READS));
    for (uint64_t i = 0; i < MANY; i++) EXPECT_OK(kvmem_transfer_submit(transfers[i], NULL, ERR));
    const struct timespec pause = {0, 10000000};
    if (progresses) {
        for (int i = 0; i < 300; i++) { /* three times as long as the last one may stall */
            NIXL(nixl_sim_complete_one());
            nanosleep(&pause, NULL);
        }
    } else {
        EXPECT_MESSAGE(KVMEM_STATUS_TIMED_OUT, "other transfers with agent 'far' have all staging memory",
                       kvmem_transfer_wait(transfers[MANY - 1], PATIENCE, ERR));
    }
    NIXL(nixl_sim_set_pending(NIXL_SIM_PENDING_NONE));
    for (uint64_t i = 0; i + 1 < MANY + (uint64_t)progresses; i++)
        EXPECT_OK(kvmem_transfer_wait(transfers[i], PATIENCE, ERR));
    for (uint64_t i = 0; i < MANY; i++) kvmem_transfer_destroy(transfers[i]);
}

TEST(a_run_waits_for_memory_while_others_with_its_peer_progress) { check_many(true); }

TEST(a_run_does_not_wait_for_memory_of_others_that_stall) { check_many(false); }

TEST(the_owner_is_notified_after_the_comparison) {
    OPENED(peers, peers, KVMEM_ORDER_FULLY_CONTIGUOUS);
    OWNED(kvmem_transfer) write =
        MADE(kvmem_transfer, kv_prepare, peers.here.layout, peers.remote,
             REF(JOB(it.run.pairs = pairs, it.run.num_pairs = NUM(pairs),
                         it.run.flags = KVMEM_SUBMIT_VERIFY, it.run.notification = "here", it.run.notification_size = 4)));
    NIXL(nixl_sim_spoil_next(NIXL_SIM_SPOIL_DAMAGE, CHUNK));
    RUN_ENDS(KVMEM_STATUS_CORRUPT, "damaged on the way", write);
    REFUSE(KVMEM_STATUS_TIMED_OUT, "in time", kvmem_agent_take_notifications, peers.far, 0);
    RUN(write);
    OWN(kvmem_notifications, taken, kvmem_agent_take_notifications, peers.far, PATIENCE);
}

/* Its bytes may still arrive, so the owner keeps the slots. The next session begins after a message that ends this one. */
TEST(a_session_with_a_failed_write_is_not_closed) {
    OPENED(peers, peers, KVMEM_ORDER_FULLY_CONTIGUOUS);
    OWNED(kvmem_transfer) write = create(&peers, false, false, KVMEM_METHOD_NIXL_SERVED, 0);
    OWNED(kvmem_transfer) next = create_one_of_many(&peers, 2, STALL);
    NIXL(nixl_sim_fail_write(1));
    RUN_ENDS(KVMEM_STATUS_NIXL, "", write);
    RUN(next);
    const uint32_t written[] = {5, 2, 0, 9};
    GET(size_t, count, kvmem_layout_get_accesses, peers.there.layout, written, NUM(written), NULL, 0);
    CHECK_EQ(count, NUM(written));
}
