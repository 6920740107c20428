// SPDX-License-Identifier: Apache-2.0
// Layouts in block storage, over the stand-in for NIXL, which moves no bytes: what is registered, which
// method a transfer takes, what is refused, and what a failure leaves.
#include "stand_in.h"

#define OFFSET 65536

static const kvmem_block_pair pairs[] = {{6, 0}, {0, 5}, {3, 3}};
static const kv_move some = {pairs, NUM(pairs), 0, 0, 3};

static kvmem_region *name_block(uint64_t device_id, uint64_t size, uint64_t alignment) {
    return MADE(kvmem_region, kvmem_region_create_block,
                REF(OPTIONS(kvmem_block_options, it.device_id = device_id, it.offset = OFFSET, it.size = size,
                            it.alignment = alignment, it.metadata = "uri", it.metadata_size = 3)));
}

static kvmem_layout *lay_out(const kvmem_layout_config *config, uint64_t alignment, kvmem_agent *agent) {
    const uint64_t size = (kv_region_size(config) + 4095) / 4096 * 4096;
    OWNED(kvmem_region) region = name_block(7, size, alignment);
    return regions_lay_out(config, &region, 1, agent);
}

static kvmem_agent *sim_agent(void) {
    nixl_find_stand_in();
    return agent_open("blocks");
}

TEST(blocks_of_every_kind_go_to_block_storage_and_back) {
    OWNED(kvmem_agent) agent = sim_agent();
    EACH_TWO_KV_KINDS(from, to) {
        if (to != &kv_kinds[0]) continue; /* one region */
        const kvmem_layout_config config = kv_config(to);
        OPENED(kv_side, host, REF(kv_config(from)), agent, 1);
        kvmem_layout *storage = lay_out(&config, 0, agent);
        CHECK_EQ(NIXL(nixl_sim_registered(OFFSET)), 1);
        const kvmem_layout_info info = layout_info(storage);
        CHECK_EQ(info.tier, KVMEM_TIER_BLOCK);
        CHECK_EQ(info.device_id, 7);
        CHECK_EQ(info.memory_type, KVMEM_MEMORY_BLOCK);
        CHECK_EQ(kv_run(host.layout, storage, &some).method, KVMEM_METHOD_NIXL);
        CHECK_EQ(kv_run(storage, host.layout, &some).method, KVMEM_METHOD_NIXL);
        kvmem_layout_destroy(storage);
        CHECK_EQ(NIXL(nixl_sim_registered(OFFSET)), 0);
    }
}

static void refuse(const kvmem_layout *source, const kvmem_layout *destination, kv_job options,
                   kvmem_status status, const char *part) {
    REFUSE(status, part, kv_prepare, source, destination, &options);
}

TEST(what_block_storage_cannot_take_is_refused) {
    OWNED(kvmem_agent) agent = sim_agent();
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    const kv_job usual = kv_job_of(&some);
    OPENED(kv_side, host, &config, agent, 1);
    OWNED(kvmem_layout) storage = lay_out(&config, 0, agent);
    OWNED(kvmem_layout) unknown = lay_out(&config, 0, NULL);
    refuse(host.layout, unknown, usual, KVMEM_STATUS_INVALID_STATE, "the block layout has no agent");
    refuse(storage, unknown, usual, KVMEM_STATUS_UNSUPPORTED, "move the blocks through a host layout");
    refuse(host.layout, storage, WITH(usual, it.transfer.flags = KVMEM_TRANSFER_NO_HOST_BOUNCE),
           KVMEM_STATUS_UNSUPPORTED,
           "KVMEM_TRANSFER_NO_HOST_BOUNCE");
    refuse(host.layout, storage, WITH(usual, it.transfer.method = KVMEM_METHOD_NIXL_STAGED),
           KVMEM_STATUS_UNSUPPORTED,
           "possible: NIXL");
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "tier block", kvmem_layout_export, storage);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "block storage cannot be shared", kvmem_share_create_layout, storage,
           NULL);
}

TEST(blocks_are_aligned_as_the_device_needs) {
    OWNED(kvmem_agent) agent = sim_agent();
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OPENED(kv_side, host, &config, agent, 1);
    OWNED(kvmem_layout) storage = lay_out(&config, 4096, agent);
    refuse(host.layout, storage, kv_job_of(&some), KVMEM_STATUS_INVALID_ARGUMENT, "multiples of 4096 bytes");
    CHECK_HAS(test_last_message(), "create the block region with a smaller alignment");
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "must be multiples of the alignment 512", kvmem_region_create_block,
           REF(OPTIONS(kvmem_block_options, it.size = 100, it.alignment = 512)));
}

TEST(a_run_that_times_out_names_the_backend) {
    OWNED(kvmem_agent) agent = sim_agent();
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OPENED(kv_side, host, &config, agent, 1);
    OWNED(kvmem_layout) storage = lay_out(&config, 0, agent);
    OWN(kvmem_transfer, transfer, kv_prepare, host.layout, storage,
        KV_JOB(&some, it.run.run_timeout_ns = MILLISECONDS(1)));
    NIXL(nixl_sim_set_pending(1));
    RUN_ENDS(KVMEM_STATUS_TIMED_OUT, "NIXL with the UCX backend was not complete after 1 ms", transfer);
    NIXL(nixl_sim_set_pending(0));
    (void)submit_when_free(transfer);
    while (kvmem_transfer_poll(transfer, ERR) == KVMEM_STATUS_IN_PROGRESS) sched_yield();
}

/* What fails to be registered leaves nothing, and can be tried again. */
TEST(a_failed_registration_can_be_repeated) {
    OWNED(kvmem_agent) agent = sim_agent();
    OWNED(kvmem_region) region = name_block(3, 4096, 0);
    NIXL(nixl_sim_fail_register(1));
    REFUSE(KVMEM_STATUS_NIXL, "register 1 descriptor of BLOCK memory with agent 'blocks'",
           kvmem_region_register, region,
           agent);
    CHECK_EQ(NIXL(nixl_sim_registered(OFFSET)), 0);
    OWN(kvmem_registration, registration, kvmem_region_register, region, agent);
    NIXL(nixl_sim_fail_deregister(1));
    EXPECT(KVMEM_STATUS_NIXL, kvmem_registration_deregister(registration, ERR));
}

/* A transfer in flight holds both layouts. */
TEST(a_transfer_in_flight_keeps_storage_registered) {
    OWNED(kvmem_agent) agent = sim_agent();
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OPENED(kv_side, host, &config, agent, 1);
    OWN(kvmem_queue, queue, kvmem_queue_create);
    const uint64_t before = NIXL(nixl_sim_registered(OFFSET)); /* what an earlier case failed to deregister */
    kvmem_layout *storage = lay_out(&config, 0, agent);
    GET(kvmem_transfer *, transfer, kv_prepare, host.layout, storage,
        KV_JOB(&some, it.transfer.queue = queue));
    NIXL(nixl_sim_set_pending(1));
    EXPECT_OK(kvmem_transfer_submit(transfer, NULL, ERR));
    kvmem_transfer_destroy(transfer);
    kvmem_layout_destroy(storage);
    CHECK_EQ(NIXL(nixl_sim_registered(OFFSET)), before + 1);
    NIXL(nixl_sim_set_pending(0));
    CHECK_EQ(next_completion(queue).status, KVMEM_STATUS_OK);
    while (NIXL(nixl_sim_registered(OFFSET)) != before) sched_yield(); /* the process has a deadline */
}

static kvmem_transfer *fail(kvmem_agent *agent, const kvmem_layout *host, const kvmem_layout *storage,
                            const char *plugin) {
    EXPECT_OK(kvmem_agent_create_backend(agent, plugin, NULL, 0, ERR));
    NIXL(nixl_sim_choose_backend(plugin));
    kvmem_transfer *transfer = kv_transfer(host, storage, &some);
    NIXL(nixl_sim_set_pending(1));
    NIXL(nixl_sim_fail_status(1));
    RUN_ENDS(KVMEM_STATUS_NIXL, "a request failed in flight", transfer);
    NIXL(nixl_sim_set_pending(0));
    return transfer;
}

/* GUSLI reports a failure when all parts have ended. */
TEST(a_failed_run_with_gusli_leaves_nothing_in_use) {
    OWNED(kvmem_agent) agent = sim_agent();
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OPENED(kv_side, host, &config, agent, 1);
    OWNED(kvmem_layout) storage = lay_out(&config, 0, agent);
    const uint64_t alive = NIXL(nixl_sim_get_requests()).alive;
    OWNED(kvmem_transfer) transfer = fail(agent, host.layout, storage, "GUSLI");
    CHECK_EQ(NIXL(nixl_sim_get_requests()).alive, alive);
    RUN(transfer);
    CHECK_EQ(NIXL(nixl_sim_get_requests()).reposts, 0);
}

/* The last case: both layouts stay. */
TEST(a_failed_run_with_another_backend_leaves_its_layouts_in_use) {
    OWNED(kvmem_agent) agent = sim_agent();
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    kv_side host; /* NIXL may access its memory until the process ends */
    kv_side_open(&host, &config, agent, 1);
    OWNED(kvmem_layout) storage = lay_out(&config, 0, agent);
    const uint64_t alive = NIXL(nixl_sim_get_requests()).alive;
    OWNED(kvmem_transfer) transfer = fail(agent, host.layout, storage, "POSIX");
    CHECK_EQ(NIXL(nixl_sim_get_requests()).alive, alive + 1);
    RUN(transfer);
    kvmem_layout_destroy(host.layout);
    free(host.expected);
}
