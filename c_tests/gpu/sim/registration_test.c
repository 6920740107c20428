// SPDX-License-Identifier: Apache-2.0
// Elastic memory that is registered with agents, if NIXL fails or deregisters slowly: memory that NIXL may
// still use stays mapped. With stand-ins for the driver and for NIXL.
#include "control.h"
#include "elastic_side.h"
#include "importer.h"
#include "patience.h"
#include "caller_context.h"
#include "stand_in.h"

#include <pthread.h>
#include <stdatomic.h>

#define EXTENT (2 * MIB)

/* An elastic region that is registered with two agents. */
typedef struct world {
    kvmem_agent *agents[2];
    kvmem_registration *registrations[2];
    kvmem_region *region;
    uint64_t address;
} world;

static world open_world(void) {
    world w;
    nixl_find_stand_in();
    w.region = region_create_elastic(4 * EXTENT, EXTENT, 0);
    w.address = region_info(w.region).address;
    for (size_t i = 0; i < NUM(w.agents); i++) {
        EXPECT_OK(kvmem_agent_create(i == 0 ? "first" : "second", NULL, &w.agents[i], ERR));
        EXPECT_OK(kvmem_agent_create_backend(w.agents[i], "UCX", NULL, 0, ERR));
        EXPECT_OK(kvmem_region_register(w.region, w.agents[i], &w.registrations[i], ERR));
    }
    return w;
}

static void world_close(world *w) {
    for (size_t i = 0; i < NUM(w->agents); i++) CALL(kvmem_registration_destroy(w->registrations[i]));
    CALL(kvmem_region_destroy(w->region));
    for (size_t i = 0; i < NUM(w->agents); i++) CALL(kvmem_agent_destroy(w->agents[i]));
}

static uint64_t committed(const world *w) {
    return region_info(w->region).num_committed;
}

/* Returns whether an extent is mapped to memory. */
static bool has_extent(const world *w, uint64_t extent) {
    int ordinal = -1;
    const CUdeviceptr address = w->address + extent * EXTENT;
    return driver_get()->cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) ==
           CUDA_SUCCESS;
}

static uint64_t registered(const world *w, uint64_t extent) {
    return NIXL(nixl_sim_registered(w->address + extent * EXTENT));
}

static void expect_works(world *w) {
    EXPECT_OK(kvmem_region_commit(w->region, 0, 3 * EXTENT, ERR));
    CHECK_EQ(committed(w), 3);
    EXPECT_OK(kvmem_region_decommit(w->region, 0, 3 * EXTENT, ERR));
    CHECK_EQ(committed(w), 0);
}

TEST(a_commit_is_undone_if_registering_fails) {
    CLEANUP(await_live) const sim_counts before = sim_live_now();
    CLEANUP(world_close) world w = open_world();
    NIXL(nixl_sim_fail_register(4)); /* the second extent with the second agent */
    EXPECT_MESSAGE(KVMEM_STATUS_NIXL, "register VRAM", kvmem_region_commit(w.region, 0, 2 * EXTENT, ERR));
    CHECK_EQ(registered(&w, 0) + registered(&w, 1), 0);
    CHECK(!has_extent(&w, 0) && !has_extent(&w, 1));
    expect_works(&w);
}

/* The other agent has deregistered the extents before, and registers them again. */
TEST(extents_with_a_request_in_flight_keep_their_memory) {
    CLEANUP(await_live) const sim_counts before = sim_live_now();
    CLEANUP(world_close) world w = open_world();
    EXPECT_OK(kvmem_region_commit(w.region, 0, 2 * EXTENT, ERR));
    agents_introduce(w.agents[1], w.agents[0]);
    const kvmem_nixl_descriptor far = {.address = w.address, .size = 4096, .memory_type = KVMEM_MEMORY_VRAM};
    const kvmem_nixl_descriptor near = WITH(far, it.address += EXTENT);
    OWN(kvmem_request, request, kvmem_request_create, w.agents[1], KVMEM_REQUEST_READ, &near, "first", &far, 1, NULL);
    NIXL(nixl_sim_set_pending(1));
    EXPECT_OK(kvmem_request_post(request, NULL, 0, ERR));
    while (NIXL(nixl_sim_get_requests()).in_flight == 0) sched_yield();
    for (int i = 0; i < 2; i++) {
        EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "1 request in flight",
                       kvmem_region_decommit(w.region, 0, 2 * EXTENT, ERR));
        CHECK_EQ(committed(&w), 2);
        CHECK(registered(&w, 0) == 2 && registered(&w, 1) == 2);
    }
    NIXL(nixl_sim_set_pending(0));
    EXPECT_OK(kvmem_request_wait(request, PATIENCE, ERR));
    EXPECT_OK(kvmem_region_decommit(w.region, 0, 2 * EXTENT, ERR));
    CHECK_EQ(registered(&w, 0) + registered(&w, 1), 0);
    CHECK(!has_extent(&w, 0) && !has_extent(&w, 1));
    expect_works(&w);
}

/* Deregistering fails for the agent with which the extent was registered, or for the one whose registration
   failed. */
TEST(extents_stay_mapped_if_deregistering_them_fails) {
    let_objects_remain();
    for (uint64_t nth = 3; nth <= 4; nth++) {
        world w = open_world();
        NIXL(nixl_sim_fail_register(nth));
        NIXL(nixl_sim_fail_deregister(1));
        EXPECT_MESSAGE(KVMEM_STATUS_NIXL, "register VRAM", kvmem_region_commit(w.region, 0, 2 * EXTENT, ERR));
        CHECK_HAS(test_last_message(), "while earlier steps were undone: deregister VRAM");
        CHECK_EQ(committed(&w), 0);
        CHECK_EQ(registered(&w, 0), 1);
        CHECK(has_extent(&w, 0));
        CHECK_EQ(registered(&w, 1), 0);
        CHECK(!has_extent(&w, 1));
        expect_works(&w);
        CHECK(has_extent(&w, 0)); /* NIXL may still use it */
        CHECK(!has_extent(&w, 1));
        world_close(&w);
        CHECK(has_extent(&w, 0));
    }
}

TEST(an_extent_that_an_agent_fails_to_deregister_can_be_committed_again) {
    let_objects_remain();
    world w = open_world();
    EXPECT_OK(kvmem_region_commit(w.region, 0, 2 * EXTENT, ERR));
    NIXL(nixl_sim_fail_deregister(1));
    EXPECT_MESSAGE(KVMEM_STATUS_NIXL, "agent 'first'", kvmem_region_decommit(w.region, 0, 2 * EXTENT, ERR));
    CHECK_EQ(committed(&w), 0);
    CHECK_EQ(registered(&w, 0), 1); /* deregistered by the other agent */
    CHECK(has_extent(&w, 0));
    CHECK_EQ(registered(&w, 1), 0);
    CHECK(!has_extent(&w, 1));
    expect_works(&w);
    CHECK(has_extent(&w, 0));
    world_close(&w);
    CHECK(has_extent(&w, 0));
}

/* A call that NIXL ends late uses its extents until then, also if they are decommitted or committed again
   meanwhile. */
TEST(extents_of_late_calls_are_unmapped_when_nixl_has_returned) {
    nixl_find_stand_in();
    kvmem_region *region = region_create_elastic(4 * EXTENT, EXTENT, 0);
    world w = {.region = region, .address = region_info(region).address};
    EXPECT_OK(kvmem_agent_create("slow", REF(OPTIONS(kvmem_agent_options,
                                                     it.call_timeout_ns = MILLISECONDS(200))),
                                 &w.agents[0], ERR));
    EXPECT_OK(kvmem_agent_create_backend(w.agents[0], "UCX", NULL, 0, ERR));
    EXPECT_OK(kvmem_region_register(region, w.agents[0], &w.registrations[0], ERR));
    for (int decommits = 0; decommits < 2; decommits++) {
        if (decommits) EXPECT_OK(kvmem_region_commit(region, 0, EXTENT, ERR));
        NIXL(nixl_sim_hold(decommits ? NIXL_SIM_DEREGISTER : NIXL_SIM_REGISTER));
        EXPECT(KVMEM_STATUS_TIMED_OUT, decommits ? kvmem_region_decommit(region, 0, EXTENT, ERR)
                                                 : kvmem_region_commit(region, 0, EXTENT, ERR));
        CHECK_EQ(committed(&w), 0);
        CHECK(has_extent(&w, 0));
        EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_region_commit(region, 0, EXTENT, ERR)); /* the same memory */
        NIXL(nixl_sim_go());
        while (has_extent(&w, 0)) sched_yield(); /* only the deadline of the test limits this */
        CHECK_EQ(registered(&w, 0), 0);
        expect_works(&w);
    }
    world_close(&w);
}

TEST(memory_that_a_failed_deregistration_leaves_registered_is_never_unmapped) {
    let_objects_remain();
    CLEANUP(world_close) world w = open_world();
    EXPECT_OK(kvmem_region_commit(w.region, 0, 2 * EXTENT, ERR));
    NIXL(nixl_sim_fail_deregister(2)); /* after the control block */
    EXPECT(KVMEM_STATUS_NIXL, kvmem_registration_deregister(w.registrations[0], ERR));
    NIXL(nixl_sim_fail_deregister(3));
    DESTROYED(kvmem_registration, w.registrations[1]);
    EXPECT_OK(kvmem_region_decommit(w.region, 0, 2 * EXTENT, ERR));
    CHECK_EQ(registered(&w, 0), 1);
    CHECK_EQ(registered(&w, 1), 1);
    CHECK(has_extent(&w, 0) && has_extent(&w, 1));
}

/* For a log callback that makes calls which need locks that other threads hold while they log. */
typedef struct caller {
    const world *world;
    kvmem_region *other;
    atomic_uint messages, failures;
} caller;

static void call_kvmem(uint32_t level, const char *target, const char *message, void *user_data) {
    caller *mine = user_data;
    kvmem_region_holders holders;
    kvmem_region_info info;
    kvmem_registration *registration = NULL;
    (void)level, (void)target, (void)message;
    mine->failures += kvmem_region_get_holders(mine->world->region, &holders, NULL) != KVMEM_STATUS_OK;
    mine->failures += kvmem_region_get_info(mine->world->region, &info, NULL) != KVMEM_STATUS_OK;
    mine->failures += kvmem_region_register(mine->other, mine->world->agents[1], &registration, NULL) !=
                      KVMEM_STATUS_OK;
    kvmem_registration_destroy(registration);
    mine->messages++;
}

/* Only for warnings and errors, so that the callback runs after a planned failure. Waits until earlier calls
   of it have returned. */
static void set_callback(caller *caller) {
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_WARN, call_kvmem, caller, ERR));
}

TEST(a_log_callback_may_call_kvmem_while_an_agent_fails) {
    let_objects_remain();
    static unsigned char memory[4096];
    static caller caller;
    CLEANUP(world_close) world w = open_world();
    caller.world = &w;
    caller.other = region_adopt(memory, sizeof(memory));
    EXPECT_OK(kvmem_region_commit(w.region, 0, 2 * EXTENT, ERR));
    set_callback(&caller);
    NIXL(nixl_sim_fail_register(2));
    EXPECT(KVMEM_STATUS_NIXL, kvmem_region_commit(w.region, 2 * EXTENT, EXTENT, ERR));
    set_callback(&caller);
    NIXL(nixl_sim_fail_deregister(1));
    EXPECT(KVMEM_STATUS_NIXL, kvmem_region_decommit(w.region, 0, EXTENT, ERR));
    set_callback(&caller);
    NIXL(nixl_sim_fail_deregister(1));
    CALL(kvmem_registration_destroy(w.registrations[0])); /* only the log reports it */
    w.registrations[0] = NULL;
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_OFF, NULL, NULL, ERR)); /* waits for its calls */
    CHECK(caller.messages > 0);
    CHECK_EQ(caller.failures, 0);
    CALL(kvmem_region_destroy(caller.other));
}

static kvmem_region_holders holders_of(const kvmem_region *region) {
    GET(kvmem_region_holders, holders, kvmem_region_get_holders, region);
    return holders;
}

TEST(holders_are_counted_by_type) {
    CLEANUP(world_close) world w = open_world();
    EXPECT_OK(kvmem_region_commit(w.region, 0, EXTENT, ERR));
    GET(kvmem_region *, view, kvmem_region_create_view, w.region, 0, EXTENT);
    GET(kvmem_share *, share, kvmem_share_create_region, w.region, NULL);
    const int importer = importer_begin(share);
    const kvmem_region_holders all = holders_of(w.region);
    CHECK_EQ(all.handles, 1);
    CHECK_EQ(all.views, 1);
    CHECK_EQ(all.registrations, 2);
    CHECK_EQ(all.shares, 1);
    CHECK_EQ(all.importers, 1);
    CHECK(all.references >= 5);
    CHECK_EQ(holders_of(view).handles, 1);
    CHECK_EQ(holders_of(view).registrations, 0);
    importer_end(importer);
    CALL(kvmem_share_destroy(share));
    CALL(kvmem_region_destroy(view));
    DESTROYED(kvmem_registration, w.registrations[0]);
    EXPECT_OK(kvmem_registration_deregister(w.registrations[1], ERR));
    const kvmem_region_holders few = holders_of(w.region);
    CHECK_EQ(few.handles, 1);
    CHECK_EQ(few.references, 2); /* the handle, and that of the deregistered registration */
    CHECK_EQ(few.views + few.registrations + few.shares + few.importers, 0);
}

TEST(handles_of_layout_get_region_are_counted) {
    kvmem_region *region = region_create_elastic(EXTENT, EXTENT, 0);
    kvmem_layout_config config = WITH(kv_config(&kv_kinds[0]), it.num_blocks = 1, it.inner_dim = 512,
                                      it.page_size = 512, it.num_layers = 2);
    kvmem_layout *layout = regions_lay_out(&config, &region, 1, NULL);
    CHECK_EQ(holders_of(region).handles, 1);
    OWN(kvmem_region, again, kvmem_layout_get_region, layout, 0);
    CHECK_EQ(holders_of(region).handles, 2);
    CALL(kvmem_region_destroy(region));
    CHECK_EQ(holders_of(again).handles, 1);
    CALL(kvmem_layout_destroy(layout));
    CHECK_EQ(holders_of(again).references, 1);
}

/* A layout on views of an elastic region registers the region, and can be exported if there is only one. */
TEST(a_layout_on_views_registers_the_elastic_region_once) {
    CLEANUP(await_live) const sim_counts before = sim_live_now();
    kvmem_layout_config config = WITH(kv_config(&kv_kinds[1]), it.inner_dim = 512, it.page_size = 512,
                                      it.num_blocks = 2);
    CHECK_EQ(kv_region_size(&config) % EXTENT, 0);
    world w = open_world();
    OWNED(kvmem_region) other = region_create_elastic(4 * EXTENT, EXTENT, 0);
    OWN(kvmem_agent, agent, kvmem_agent_create, "third", NULL);
    EXPECT_OK(kvmem_agent_create_backend(agent, "UCX", NULL, 0, ERR));
    elastic_parts parts;
    elastic_parts_open(&parts, &config, w.region, 0);
    parts.options.agent = agent;
    GET(kvmem_layout *, layout, kvmem_layout_build, &parts.options);
    CHECK_EQ(holders_of(w.region).registrations, 3);
    CHECK_EQ(holders_of(w.region).views, parts.options.count);
    EXPECT_OK(kvmem_region_commit(w.region, 0, EXTENT, ERR));
    CHECK_EQ(registered(&w, 0), 3);
    GET(kvmem_blob *, descriptor, kvmem_layout_export, layout);
    CALL(kvmem_blob_destroy(descriptor));
    CALL(kvmem_layout_destroy(layout));
    CHECK_EQ(holders_of(w.region).registrations, 2);

    GET(kvmem_region *, scattered, kvmem_region_create_view, other, 0, kv_region_size(&config));
    CALL(kvmem_region_destroy(parts.views[0]));
    parts.views[0] = scattered;
    EXPECT_OK(kvmem_layout_build(&parts.options, &layout, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "several elastic regions",
                   kvmem_layout_export(layout, &descriptor, ERR));
    CALL(kvmem_layout_destroy(layout));
    elastic_parts_close(&parts);
    world_close(&w);
}

static void *destroy_registration(void *registration) {
    kvmem_registration_destroy(registration);
    return NULL;
}

/* The registration is destroyed, and its agent is deregistering the memory. */
TEST(decommitting_fails_while_an_agent_deregisters) {
    CLEANUP(await_live) const sim_counts before = sim_live_now();
    CLEANUP(world_close) world w = open_world();
    EXPECT_OK(kvmem_region_commit(w.region, 0, EXTENT, ERR));
    NIXL(nixl_sim_hold(NIXL_SIM_DEREGISTER));
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, destroy_registration, w.registrations[0]), 0);
    w.registrations[0] = NULL;
    const uint64_t end = patience_end();
    while (NIXL(nixl_sim_waiting()) == 0) patience_wait(end, "a deregistration to begin");
    EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "deregistering the region",
                   kvmem_region_decommit(w.region, 0, EXTENT, ERR));
    CHECK(has_extent(&w, 0));
    CHECK_EQ(committed(&w), 1);
    NIXL(nixl_sim_go());
    CHECK_EQ(pthread_join(thread, NULL), 0);
    EXPECT_OK(kvmem_region_decommit(w.region, 0, EXTENT, ERR));
    CHECK(!has_extent(&w, 0));
}

/* The blocks are in an extent of the peer without memory, so they cannot be moved without staging memory,
   either. */
TEST(a_transfer_that_no_path_can_take_reports_the_causes_of_both) {
    nixl_find_stand_in();
    const kvmem_layout_config far_config = WITH(kv_config(&kv_kinds[0]), it.num_layers = 64,
                                                it.num_blocks = 4096);
    const kvmem_layout_config near_config =
        WITH(far_config, it.num_blocks = 8, it.order = KVMEM_ORDER_LAYER_SEPARATE);
    OWNED(kvmem_agent) near = agent_open("near");
    OWNED(kvmem_agent) far = agent_open("far");
    OPENED(kv_side, local, &near_config, near, 1);
    OWNED(kvmem_layout) elastic = elastic_layout(&far_config, 0, far);
    EXPECT_OK(kvmem_layout_resize(elastic, 8, ERR));
    CHECK_EQ(elastic_layout_memory(elastic).num_committed, 1);
    agents_introduce(near, far);
    OWNED(kvmem_layout) remote = layout_import(near, elastic);
    kvmem_block_pair pairs[8];
    for (uint32_t i = 0; i < NUM(pairs); i++) pairs[i] = (kvmem_block_pair){4088 + i, i};
    const kv_move all = {pairs, NUM(pairs), 0, 0, far_config.num_layers};
    NIXL(nixl_sim_fail_register(1));
    REFUSE(KVMEM_STATUS_INVALID_STATE, "which was not committed", kv_prepare, remote, local.layout,
           KV_JOB(&all));
    CHECK_HAS(test_last_message(), "before that, method NIXL, staged failed: ");
    CHECK_HAS(test_last_message(), "register DRAM memory");
}
