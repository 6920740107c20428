// SPDX-License-Identifier: Apache-2.0
// Handles in a forked child: every use fails with INVALID_STATE, destroying them has no effect on the parent,
// and the parent's objects work as before.
#include "contract.h"

#define FORKED_NULLS(output, function, ...)                                                          \
    REFUSED_NULLS(output, KVMEM_STATUS_INVALID_STATE, function, __VA_ARGS__)
#define FORKED_KEEPS(output, function, ...)                                                          \
    REFUSED_KEEPS(output, KVMEM_STATUS_INVALID_STATE, function, __VA_ARGS__)

static world w;

#include "simple_calls.h" /* generated */

static void use_regions(void) {
    kvmem_blob *text = NULL;
    kvmem_region *region = NULL;
    kvmem_registration *registration = NULL;
    FORKED_NULLS(region, kvmem_region_create_view, w.region, 0, 1, &region);
    FORKED_NULLS(text, kvmem_region_get_path, w.file, &text);
    FORKED_NULLS(text, kvmem_region_get_agent, w.region, 0, &text);
    FORKED(kvmem_region_sync, w.file);
    FORKED(kvmem_pool_set_current, 0, w.region);
    CHECK(kvmem_pool_malloc(1, 0, NULL) == NULL);
    FORKED_NULLS(registration, kvmem_region_register, w.region, w.far, &registration);
}

static void use_agents(void) {
    kvmem_agent *agent = NULL;
    kvmem_blob *blob = NULL;
    kvmem_notifications *taken = NULL;
    FORKED_NULLS(agent, kvmem_agent_create, "child", NULL, &agent); /* UCX does not survive a fork */
    FORKED(kvmem_nixl_load, NULL);
    FORKED(kvmem_agent_create_backend, w.agent, "POSIX", NULL, 0);
    FORKED_NULLS(blob, kvmem_agent_get_local_metadata, w.agent, &blob);
    FORKED_NULLS(blob, kvmem_agent_load_remote_metadata, w.agent, "x", 1, &blob);
    FORKED(kvmem_agent_check_remote_metadata, w.agent, "far");
    FORKED(kvmem_agent_invalidate_remote_metadata, w.agent, "far", NULL);
    FORKED(kvmem_agent_fetch_remote_metadata, w.agent, "far", "127.0.0.1", 1, 0);
    FORKED(kvmem_agent_send_local_metadata, w.agent, "127.0.0.1", 1);
    FORKED(kvmem_agent_notify, w.agent, "far", "x", 1);
    FORKED_NULLS(taken, kvmem_agent_take_notifications, w.agent, 0, &taken);
}

static void use_layouts(void) {
    kvmem_layout_info info;
    kvmem_region *region = NULL;
    kvmem_blob *blob = NULL;
    kvmem_layout *layout = NULL;
    FORKED_KEEPS(info, kvmem_layout_get_info, w.local.layout, &info);
    FORKED_NULLS(region, kvmem_layout_get_region, w.local.layout, 0, &region);
    const uint32_t first = 0;
    FORKED(kvmem_layout_create_epochs, w.local.layout, NULL);
    size_t accesses = 0;
    FORKED_KEEPS(accesses, kvmem_layout_get_accesses, w.local.layout, &first, 1, NULL, 0, &accesses);
    kvmem_lease *lease = NULL;
    FORKED_NULLS(lease, kvmem_lease_create, w.local.layout, &first, 1, NULL, &lease);
    FORKED_NULLS(blob, kvmem_layout_export, w.near.layout, &blob);
    FORKED(kvmem_layout_serve, w.near.layout, NULL);
    FORKED_NULLS(layout, kvmem_layout_import, w.agent, "x", 1, &layout);
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    kvmem_layout_options options = OPTIONS(kvmem_layout_options, it.config = &config,
                                           it.source = KVMEM_LAYOUT_REGIONS, it.regions = &w.region,
                                           it.count = 1);
    FORKED_NULLS(layout, kvmem_layout_build, &options, &layout);
    FORKED_NULLS(layout, kvmem_layout_combine, REF(((kvmem_layout_part){"part", w.local.layout})), 1,
                 &layout);
    FORKED_NULLS(layout, kvmem_layout_get_part, w.local.layout, "part", &layout);
}

static void use_transfers(void) {
    size_t count = 0;
    kvmem_completion completion;
    kvmem_transfer *transfer = NULL;
    const kv_job job = world_job();
    FORKED_KEEPS(count, kvmem_queue_wait, w.queue, KVMEM_TIMEOUT_FOREVER, &completion, 1, &count);
    FORKED_NULLS(transfer, kvmem_transfer_create, w.local.layout, w.local.layout, &job.transfer, &transfer);
    FORKED_NULLS(transfer, kvmem_transfer_start, w.local.layout, w.local.layout, &job.transfer, &job.run,
                 &transfer);
    FORKED(kvmem_transfer_prepare, w.copy, &job.run);
    FORKED(kvmem_transfer_submit, w.copy, &job.run);
    FORKED(kvmem_transfer_submit_on_stream, w.copy, &job.run, NULL);
    FORKED(kvmem_transfer_submit, w.transfer, NULL);
    kvmem_blob *text = NULL;
    FORKED(kvmem_transfer_submit_on_stream, w.copy, NULL, NULL);
    FORKED(kvmem_transfer_wait_on_stream, w.copy, 0, NULL);
    FORKED_NULLS(text, kvmem_transfer_explain, w.copy, &text);
    kvmem_compared_method methods[2];
    FORKED_KEEPS(methods, kvmem_transfer_get_methods, w.copy, methods, 2, &count);
}

static void destroy_everything(void) { world_close(&w); }

/* A child can allocate memory, which needs no object of the parent. */
static void create_own_memory(void) {
    OWN(kvmem_region, region, kvmem_region_create_system, REF(OPTIONS(kvmem_system_options, it.size = 4096)));
    memset((void *)(uintptr_t)region_info(region).address, 1, region_info(region).size);
}

/* The copying threads exist only in the parent: a transfer of the child succeeds or fails, and does not
   hang. */
static void run_own_transfer(void) {
    OPENED(kv_side, side, REF(kv_config(&kv_kinds[0])), NULL, 1);
    const kv_job job = world_job();
    OWNED(kvmem_transfer) transfer = NULL;
    kvmem_status status = kvmem_transfer_start(side.layout, side.layout, &job.transfer, &job.run, &transfer,
                                               ERR);
    if (status == KVMEM_STATUS_OK) status = kvmem_transfer_wait(transfer, SECONDS(10), ERR);
    CHECK(status == KVMEM_STATUS_OK || status == KVMEM_STATUS_INVALID_STATE);
}

static void expect_parent_works(void) {
    RUN(w.copy);
    RUN(w.transfer);
    GET(size_t, leases, kvmem_layout_get_accesses, w.local.layout, REF((uint32_t)0), 1, NULL, 0);
    CHECK_EQ(leases, 1);
}

TEST(open_world) {
    world_open(&w);
    expect_parent_works(); /* so that all threads are started before the fork */
}

#define IN_CHILD(what)                                                                               \
    TEST(what##_in_a_child) {                                                                        \
        in_a_forked_child(what);                                                                     \
        expect_parent_works();                                                                       \
    }
IN_CHILD(simple_calls)
IN_CHILD(use_regions)
IN_CHILD(use_agents)
IN_CHILD(use_layouts)
IN_CHILD(use_transfers)
IN_CHILD(destroy_everything)
IN_CHILD(create_own_memory)
IN_CHILD(run_own_transfer)

TEST_CALL(close_world, world_close(&w))
