// SPDX-License-Identifier: Apache-2.0
// Transfers through staging memory, with the stand-in for NIXL: chunks that fail or stay in flight, requests
// that are not released, and staging memory that cannot be registered.
#include "two_agents.h"

/* Of the requests that were posted since then. */
static bool all_but_one_in_flight(uint64_t posts) {
    const nixl_sim_requests now = requests();
    return now.posts == posts + now.in_flight + 1;
}

TEST(a_chunk_that_fails_is_released_and_the_next_run_moves_all) {
    const kvmem_layout_config config = many_chunks();
    OPENED(pair, pair, &config);
    OWNED(kvmem_transfer) staged = create_staged(&pair, &config, 0);
    NIXL(nixl_sim_fail_post(3));
    EXPECT(KVMEM_STATUS_NIXL, run(staged));
    CHECK_EQ(requests().alive, 0);
    EXPECT_OK(run(staged));
    NIXL(nixl_sim_set_pending(1));
    NIXL(nixl_sim_fail_status(2));
    const uint64_t posts = requests().posts;
    EXPECT_OK(kvmem_transfer_submit(staged, NULL, ERR));
    AWAIT(all_but_one_in_flight(posts));
    NIXL(nixl_sim_set_pending(0));
    EXPECT(KVMEM_STATUS_NIXL, kvmem_transfer_wait(staged, PATIENCE, ERR));
    EXPECT_OK(run(staged));
    CHECK_EQ(requests().alive, 0);
}

TEST(chunks_in_flight_do_not_exceed_the_slots_of_a_peer_and_end_after_a_cancellation) {
    const kvmem_layout_config config = many_chunks();
    OPENED(pair, pair, &config);
    /* They are in flight at the same time, so each writes a different layer. */
    OWNED(kvmem_transfer) staged = create_staged_layers(&pair, &config, 0, 1, 0);
    OWNED(kvmem_transfer) second = create_staged_layers(&pair, &config, 1, 1, 0);
    OWNED(kvmem_transfer) third = create_staged_layers(&pair, &config, 2, 1, 0);
    NIXL(nixl_sim_set_pending(1));
    EXPECT_OK(kvmem_transfer_submit(staged, NULL, ERR));
    AWAIT(requests().in_flight == 4);
    EXPECT_OK(kvmem_transfer_submit(second, NULL, ERR));
    AWAIT(requests().in_flight == 6); /* a peer has six of the eight slots */
    EXPECT_OK(kvmem_transfer_submit(third, NULL, ERR)); /* it gets no slot before another run ends */
    EXPECT_OK(kvmem_transfer_cancel(staged, ERR));
    CHECK_EQ(requests().in_flight, 6);
    NIXL(nixl_sim_set_pending(0));
    EXPECT(KVMEM_STATUS_CANCELLED, kvmem_transfer_wait(staged, PATIENCE, ERR));
    EXPECT_OK(kvmem_transfer_wait(second, PATIENCE, ERR));
    EXPECT_OK(kvmem_transfer_wait(third, PATIENCE, ERR));
    CHECK_EQ(requests().alive, 0);
}

/* From here on a request remains in each case, which the stand-in counts in later ones. */
/* The request is complete, and its chunk is in the slot: it is not copied, because NIXL may still write to
   the slot. */
TEST(a_chunk_whose_request_is_not_released_fails_the_run) {
    nixl_find_stand_in();
    const kvmem_layout_config config = many_chunks();
    OWNED(kvmem_agent) near = agent_open("near");
    OWNED(kvmem_agent) far = agent_open("far");
    kv_side here, there;
    kv_side_open(&here, &config, near, 1);
    kv_side_open(&there, &config, far, 2);
    agents_introduce(near, far);
    kvmem_layout *remote = layout_import(near, there.layout);
    kvmem_block_pair pairs[NUM_BLOCKS];
    for (uint32_t i = 0; i < NUM_BLOCKS; i++) pairs[i] = (kvmem_block_pair){i, NUM_BLOCKS - 1 - i};
    const kv_move all = {pairs, NUM_BLOCKS, 0, 0, config.num_layers};
    kvmem_transfer *staged =
        MADE(kvmem_transfer, kv_prepare, remote, here.layout,
             KV_JOB(&all, it.transfer.method = KVMEM_METHOD_NIXL_STAGED, it.transfer.staging_size = 8 * 4096));
    RUN(staged);
    /* The stand-in moves nothing, and slots are new memory: they have no such bytes. */
    memset(here.memory + here.starts[0], 0xAA, kv_region_size(&config));
    NIXL(nixl_sim_fail_release(3));
    RUN_ENDS(KVMEM_STATUS_NIXL, "release a request", staged);
    /* A slot is lost, and not the arena. */
    for (int i = 0; i < 20; i++) RUN(staged);
    const unsigned char *memory = here.memory + here.starts[0];
    for (size_t i = 0; i < kv_region_size(&config); i++) CHECK(memory[i] != 0xAA);
    DESTROYED(kvmem_transfer, staged);
    DESTROYED(kvmem_layout, remote);
    kv_side_close(&here);
    kv_side_close(&there);
}

/* The request uses only a slot of the arena, not the memory of the layouts. */
TEST(a_run_after_a_request_that_cannot_be_released_uses_other_slots) {
    const kvmem_layout_config config = many_chunks();
    OPENED(pair, pair, &config);
    OWNED(kvmem_transfer) staged = create_staged(&pair, &config, 0);
    NIXL(nixl_sim_fail_post(1));
    NIXL(nixl_sim_fail_release(1));
    EXPECT(KVMEM_STATUS_NIXL, run(staged));
    EXPECT_OK(run(staged));
}

/* kvmem chose the method, so a transfer without staging memory takes another one. No other case has a peer of
   this name: what it measured of the stand-in, whose requests cost nothing, would choose the method here. */
TEST(a_transfer_whose_staging_memory_cannot_be_registered_takes_another_method) {
    nixl_find_stand_in();
    const kvmem_layout_config near_config =
        WITH(kv_config(&kv_kinds[0]), it.num_layers = 64, it.num_blocks = 64,
             it.order = KVMEM_ORDER_LAYER_SEPARATE);
    const kvmem_layout_config far_config = WITH(near_config, it.order = KVMEM_ORDER_FULLY_CONTIGUOUS);
    OWNED(kvmem_agent) near = agent_open("near");
    OWNED(kvmem_agent) far = agent_open("unmeasured");
    CLEANUP(kv_side_close) kv_side near_side, far_side;
    kv_side_open(&near_side, &near_config, near, 1);
    kv_side_open(&far_side, &far_config, far, 2);
    agents_introduce(near, far);
    OWNED(kvmem_layout) remote = layout_import(near, far_side.layout);
    kvmem_block_pair pairs[64];
    for (uint32_t i = 0; i < NUM(pairs); i++)
        pairs[i] = (kvmem_block_pair){i, NUM(pairs) - 1 - i};
    const kv_move all = {pairs, NUM(pairs), 0, 0, 64};
    NIXL(nixl_sim_fail_register(1));
    OWN(kvmem_transfer, direct, kv_prepare, remote, near_side.layout, KV_JOB(&all));
    CHECK_EQ(transfer_info(direct).method, KVMEM_METHOD_NIXL);
    kvmem_compared_method explanation;
    CHECK_HAS(kv_explained(direct, &explanation), "register DRAM memory");
    OWN(kvmem_transfer, staged, kv_prepare, remote, near_side.layout, KV_JOB(&all));
    CHECK_EQ(transfer_info(staged).method, KVMEM_METHOD_NIXL_STAGED);
    NIXL(nixl_sim_fail_register(1));
    REFUSE(KVMEM_STATUS_NIXL, "register DRAM memory", kv_prepare, remote, near_side.layout,
           KV_JOB(&all, it.transfer.method = KVMEM_METHOD_NIXL_STAGED, it.transfer.staging_size = 1 << 20));
    EXPECT_OK(run(direct));
}
