// SPDX-License-Identifier: Apache-2.0
// A release callback that calls the agent whose thread was the last user of the memory.
#include "harness.h"

KV_PEER_ROLE

static const kv_move move = KV_MOVE(3, {6, 0}, {0, 5}, {3, 3});

#define RUNS 50

typedef struct on_release {
    kvmem_agent *agent;
    atomic_int calls;
    atomic_int failures;
} on_release;

/* A failed check would end the case on the wrong thread, so failures are counted. */
static void call_the_agent(void *user_data) {
    on_release *mine = user_data;
    kvmem_blob *metadata = NULL;
    mine->failures += kvmem_agent_get_local_metadata(mine->agent, &metadata, NULL) != KVMEM_STATUS_OK;
    kvmem_blob_destroy(metadata);
    mine->calls++;
}

static kvmem_layout *layout_with_release(const kvmem_layout_config *config, void *memory,
                                         on_release *release) {
    OWN(kvmem_region, region, kvmem_region_adopt_host,
        REF(OPTIONS(kvmem_adopt_options, it.address = memory, it.size = kv_region_size(config),
                    it.release = call_the_agent, it.user_data = release)));
    return regions_lay_out(config, &region, 1, release->agent);
}

/* The stopped peer keeps the request in flight until every handle is destroyed. */
static void destroy_in_flight(kv_peer *peer, on_release *release, void *memory) {
    OWNED(kvmem_layout) local = layout_with_release(&peer->model.config, memory, release);
    OWN(kvmem_transfer, transfer, kv_prepare, peer->model.layout, local, KV_JOB(&move));
    peer_freeze(&peer->process);
    EXPECT_OK(kvmem_transfer_submit(transfer, NULL, ERR));
    peer_thaw(&peer->process);
}

TEST(a_callback_may_call_the_agent) {
    static on_release release;
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    release.agent = agent_open("near");
    kv_peer peer;
    kv_peer_open(&peer, "far", &config, 2);
    kv_peer_meet(&peer, release.agent);
    CLEANUP(test_free) void *memory = test_allocate(kv_region_size(&config));
    for (int i = 1; i <= RUNS; i++) {
        destroy_in_flight(&peer, &release, memory);
        while (release.calls < i) { /* only the deadline of the process limits this */
            finish_releases();
        }
    }
    CHECK_EQ(release.calls, RUNS);
    CHECK_EQ(release.failures, 0);
    kv_peer_close(&peer);
    kvmem_agent_destroy(release.agent);
}

/* The last handle of an agent: the callback may destroy it, too. */
static void destroy_the_agent(void *user_data) {
    on_release *mine = user_data;
    kvmem_agent_destroy(mine->agent);
    mine->calls++;
}

TEST(a_callback_may_destroy_the_agent) {
    static unsigned char memory[4096];
    static on_release release;
    kvmem_adopt_options options = OPTIONS(kvmem_adopt_options, it.address = memory, it.size = sizeof(memory),
                                          it.release = destroy_the_agent, it.user_data = &release);
    release.agent = agent_open("near");
    GET(kvmem_region *, region, kvmem_region_adopt_host, &options);
    GET(kvmem_registration *, registration, kvmem_region_register, region, release.agent);
    kvmem_region_destroy(region);
    kvmem_registration_destroy(registration);
    while (release.calls == 0) finish_releases();
}

/* A region of the test, with a new layout and registration for each run. */
TEST(a_run_that_ended_keeps_no_object) {
    enum { ENDS = 200 };
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OWNED(kvmem_agent) agent = agent_open("near");
    OPENED(kv_peer, peer, "far", &config, 2);
    kv_peer_meet(&peer, agent);
    OWN(kvmem_queue, queue, kvmem_queue_create);
    CLEANUP(test_free) void *memory = test_allocate(kv_region_size(&config));
    OWNED(kvmem_region) region = region_adopt(memory, kv_region_size(&config));
    for (int i = 0; i < ENDS; i++) {
        kvmem_layout *local = regions_lay_out(&config, &region, 1, agent);
        kv_job options = WITH(kv_job_of(&move), it.transfer.queue = queue,
                                              it.transfer.flags = i % 2 == 0 ? 0 : KVMEM_TRANSFER_BY_LAYER);
        GET(kvmem_transfer *, transfer, kv_prepare, peer.model.layout, local, &options);
        EXPECT_OK(kvmem_transfer_submit(transfer, NULL, ERR));
        if (i % 4 >= 2) EXPECT_OK(kvmem_transfer_cancel(transfer, ERR));
        kvmem_transfer_destroy(transfer);
        kvmem_layout_destroy(local);
        const kvmem_status status = next_completion(queue).status;
        CHECK(status == KVMEM_STATUS_OK || (i % 4 >= 2 && status == KVMEM_STATUS_CANCELLED));
        CHECK_EQ(region_holders(region).registrations, 0);
        CHECK_EQ(region_holders(region).references, 1);
    }
}
