// SPDX-License-Identifier: Apache-2.0
// Calls that wait for NIXL longer than the agent permits, with the stand-in for NIXL: they end, and what NIXL
// does later is undone.
#include "stand_in.h"

#define PART "is in a call of NIXL that has not returned"

/* Long enough for the calls that NIXL returns from, also on a busy machine. */
#define LIMIT (SECONDS(1) / 2)

static unsigned char memory[3 * 4096];

/* An agent whose calls have a limit, a peer, and a segment of the agent. */
typedef struct pair {
    kvmem_agent *near, *far;
    kvmem_nixl_descriptor local, remote;
    kvmem_segments *segments;
} pair;

static void pair_open(pair *pair) {
    nixl_find_stand_in();
    const kvmem_agent_options options = OPTIONS(kvmem_agent_options, it.call_timeout_ns = LIMIT);
    pair->far = agent_open("far");
    pair->near = MADE(kvmem_agent, kvmem_agent_create, "near", &options);
    EXPECT_OK(kvmem_agent_create_backend(pair->near, "UCX", NULL, 0, ERR));
    agents_introduce(pair->near, pair->far);
    pair->local = memory_at(memory, 4096);
    pair->remote = memory_at(memory + 4096, 4096);
    EXPECT_OK(kvmem_segments_register(pair->near, &pair->local, 1, NULL, &pair->segments, ERR));
}

static void pair_close(pair *pair) {
    kvmem_segments_destroy(pair->segments);
    kvmem_agent_destroy(pair->near);
    kvmem_agent_destroy(pair->far);
}

static kvmem_region *adopt(void *first) {
    return MADE(kvmem_region, kvmem_region_adopt_host,
                REF(OPTIONS(kvmem_adopt_options, it.address = first, it.size = 4096)));
}

static uint64_t registrations(const void *first) { return NIXL(nixl_sim_registered((uintptr_t)first)); }

/* The agent executes calls in order, so all earlier ones have ended after this one. */
static void go_on(kvmem_agent *agent) {
    NIXL(nixl_sim_go());
    kvmem_status status = KVMEM_STATUS_TIMED_OUT;
    while (status == KVMEM_STATUS_TIMED_OUT) {
        OWNED(kvmem_blob) metadata = NULL;
        status = kvmem_agent_get_local_metadata(agent, &metadata, ERR);
    }
    CHECK_EQ(status, KVMEM_STATUS_OK);
}

TEST(a_region_that_is_registered_too_late_is_deregistered) {
    OPENED(pair, it);
    void *const first = memory + 8192;
    OWNED(kvmem_region) region = adopt(first);
    NIXL(nixl_sim_hold(NIXL_SIM_REGISTER));
    REFUSE(KVMEM_STATUS_TIMED_OUT, PART, kvmem_region_register, region, it.near);
    CHECK_HAS(test_last_message(), "'near'");
    REFUSE(KVMEM_STATUS_TIMED_OUT, PART, kvmem_agent_get_local_metadata, it.near);
    go_on(it.near);
    CHECK_EQ(registrations(first), 0);
    OWNED(kvmem_region) again = adopt(first);
    OWN(kvmem_registration, registration, kvmem_region_register, again, it.near);
    CHECK_EQ(registrations(first), 1);
}

/* Memory that NIXL may use is not freed before the call that has timed out returns, and is freed then. */
TEST(a_region_that_is_registered_or_deregistered_too_late_is_freed_when_nixl_has_returned) {
    OPENED(pair, it);
    for (int deregisters = 0; deregisters < 2; deregisters++) {
        OWNED(kvmem_region) region = region_adopt_noting_release(memory + 8192, 4096);
        OWNED(kvmem_registration) registration = NULL;
        if (deregisters) {
            EXPECT_OK(kvmem_region_register(region, it.near, &registration, ERR));
            NIXL(nixl_sim_hold(NIXL_SIM_DEREGISTER));
            EXPECT_MESSAGE(KVMEM_STATUS_TIMED_OUT, PART, kvmem_registration_deregister(registration, ERR));
        } else {
            NIXL(nixl_sim_hold(NIXL_SIM_REGISTER));
            REFUSE(KVMEM_STATUS_TIMED_OUT, PART, kvmem_region_register, region, it.near);
        }
        const int before = releases_count();
        DESTROYED(kvmem_registration, registration);
        DESTROYED(kvmem_region, region);
        CHECK_EQ(releases_count(), before);
        go_on(it.near);
        CHECK_EQ(registrations(memory + 8192), 0);
        await_releases(before + 1);
    }
}

/* NIXL keeps the memory after the late call, too. */
TEST(a_region_that_is_not_deregistered_late_is_never_freed) {
    OPENED(pair, it);
    static unsigned char kept[4096];
    OWNED(kvmem_region) region = region_adopt_noting_release(kept, sizeof(kept));
    const int before = releases_count();
    NIXL(nixl_sim_hold(NIXL_SIM_REGISTER));
    REFUSE(KVMEM_STATUS_TIMED_OUT, PART, kvmem_region_register, region, it.near);
    NIXL(nixl_sim_fail_deregister(1));
    DESTROYED(kvmem_region, region);
    go_on(it.near);
    CHECK_EQ(registrations(kept), 1);
    CHECK_EQ(releases_count(), before);
}

/* NIXL may not return, also if the caller has no limit: other publications of the agent wait for this one. */
TEST(a_publication_without_a_timeout_ends_at_the_limit_of_its_agent) {
    OPENED(pair, it);
    SCRATCH(files);
    OWN(kvmem_directory, directory, kvmem_directory_create,
        REF(OPTIONS(kvmem_directory_options, it.folder = scratch_file(&files, "agents"))));
    OWNED(kvmem_region) region = adopt(memory + 8192);
    NIXL(nixl_sim_hold(NIXL_SIM_REGISTER));
    REFUSE(KVMEM_STATUS_TIMED_OUT, PART, kvmem_region_register, region, it.near);
    EXPECT_MESSAGE(KVMEM_STATUS_TIMED_OUT, PART,
                   kvmem_directory_publish(directory, it.near, NULL, 0, KVMEM_TIMEOUT_FOREVER, ERR));
    go_on(it.near);
    EXPECT_OK(kvmem_directory_publish(directory, it.near, NULL, 0, PATIENCE, ERR));
}

/* While the agent is in a call, later ones wait for it, and are executed after they have timed out. */
TEST(what_is_made_too_late_is_ended) {
    OPENED(pair, it);
    void *const first = memory + 8192;
    const kvmem_nixl_descriptor more = memory_at(first, 4096);
    NIXL(nixl_sim_hold(NIXL_SIM_REGISTER));
    REFUSE(KVMEM_STATUS_TIMED_OUT, PART, kvmem_segments_register, it.near, &more, 1, NULL);
    REFUSE(KVMEM_STATUS_TIMED_OUT, PART, kvmem_memory_view_create, it.near, &it.local, 1, NULL, REF((void *){0}));
    REFUSE(KVMEM_STATUS_TIMED_OUT, PART, kvmem_prepared_create, it.near, NULL, &it.local, 1, NULL);
    REFUSE(KVMEM_STATUS_TIMED_OUT, PART, kvmem_request_create, it.near, KVMEM_REQUEST_READ, &it.local, "far",
           &it.remote, 1, NULL);
    go_on(it.near);
    CHECK_EQ(registrations(first), 0);
    CHECK_EQ(NIXL(nixl_sim_get_views()).alive, 0);
    CHECK_EQ(NIXL(nixl_sim_get_views()).released, 1);
    CHECK_EQ(NIXL(nixl_sim_get_requests()).alive, 0);
}

/* Memory of a region that only registered descriptors keep, and that NIXL does not give back: with one of two
   backends, after a call that has timed out, or at the end. */
TEST(memory_that_nixl_keeps_is_not_freed) {
    OPENED(pair, it);
    EXPECT_OK(kvmem_agent_create_backend(it.near, "POSIX", NULL, 0, ERR));
    const char *const names[] = {"UCX", "POSIX"};
    const kvmem_nixl_options both = OPTIONS(kvmem_nixl_options, it.backends = names,
                                            it.backend_count = NUM(names));
    enum { ONE_BACKEND, LATE, AT_THE_END, CASES };
    static unsigned char kept[CASES][4096];
    const int before = releases_count();
    for (int i = 0; i < CASES; i++) {
        OWNED(kvmem_region) region = region_adopt_noting_release(kept[i], sizeof(kept[i]));
        const kvmem_nixl_descriptor memory_of_it = region_descriptor(region);
        OWNED(kvmem_segments) segments = NULL;
        if (i == ONE_BACKEND) {
            NIXL(nixl_sim_fail_register(2));
            NIXL(nixl_sim_fail_deregister(1));
            REFUSE(KVMEM_STATUS_NIXL, "with its POSIX backend", kvmem_segments_register, it.near,
                   &memory_of_it, 1, &both);
            CHECK_HAS(test_last_message(), "from its UCX backend: deregister");
        } else if (i == LATE) {
            NIXL(nixl_sim_hold(NIXL_SIM_REGISTER));
            REFUSE(KVMEM_STATUS_TIMED_OUT, PART, kvmem_segments_register, it.near, &memory_of_it, 1, &both);
            NIXL(nixl_sim_fail_deregister(1));
            go_on(it.near);
        } else {
            EXPECT_OK(kvmem_segments_register(it.near, &memory_of_it, 1, &both, &segments, ERR));
            NIXL(nixl_sim_fail_deregister(2));
            DESTROYED(kvmem_segments, segments);
            go_on(it.near);
        }
        CHECK_EQ(registrations(kept[i]), 1);
        DESTROYED(kvmem_region, region);
        CHECK_EQ(releases_count(), before);
    }
}

/* A call that has timed out frees the memory when NIXL has returned. */
TEST(memory_that_nixl_gives_back_late_is_freed) {
    OPENED(pair, it);
    OWNED(kvmem_region) region = region_adopt_noting_release(memory + 8192, 4096);
    const kvmem_nixl_descriptor memory_of_it = region_descriptor(region);
    const int before = releases_count();
    OWN(kvmem_segments, segments, kvmem_segments_register, it.near, &memory_of_it, 1, NULL);
    NIXL(nixl_sim_hold(NIXL_SIM_DEREGISTER));
    EXPECT_MESSAGE(KVMEM_STATUS_TIMED_OUT, PART, kvmem_segments_deregister(segments, ERR));
    DESTROYED(kvmem_segments, segments);
    DESTROYED(kvmem_region, region);
    CHECK_EQ(releases_count(), before);
    go_on(it.near);
    await_releases(before + 1);
}

/* The call that destroys a registration returns, and the memory is deregistered later. */
TEST(a_registration_is_destroyed_while_nixl_does_not_return) {
    OPENED(pair, it);
    void *const first = memory + 8192;
    OWNED(kvmem_region) region = adopt(first);
    kvmem_registration *registration = MADE(kvmem_registration, kvmem_region_register, region, it.near);
    CHECK_EQ(registrations(first), 1);
    NIXL(nixl_sim_hold(NIXL_SIM_DEREGISTER));
    kvmem_registration_destroy(registration);
    CHECK_EQ(registrations(first), 1);
    go_on(it.near);
    CHECK_EQ(registrations(first), 0);
}

/* The first deregistration waits, and the others are left to the agent. */
TEST(a_layout_of_many_regions_is_destroyed_while_nixl_does_not_return) {
    OPENED(pair, it);
    kv_side side;
    kv_side_open(&side, REF(kv_config(&kv_kinds[1])), it.near, 1);
    const unsigned char *const first =
        side.memory + side.starts[0], *const last = side.memory + side.starts[2];
    CHECK_EQ(registrations(first) + registrations(last), 2);
    NIXL(nixl_sim_hold(NIXL_SIM_DEREGISTER));
    kv_side_close(&side);
    CHECK_EQ(registrations(first) + registrations(last), 2);
    go_on(it.near);
    CHECK_EQ(registrations(first) + registrations(last), 0);
}

/* The agent's own limit is 10 minutes. */
TEST(a_checksum_with_a_limit_ends_while_the_agent_is_in_a_call) {
    nixl_find_stand_in();
    OWNED(kvmem_agent) agent = agent_open("storing");
    EXPECT_OK(kvmem_agent_create_backend(agent, "OBJ", NULL, 0, ERR));
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OWN(kvmem_region, region, kvmem_region_create_object,
        REF(OPTIONS(kvmem_object_options, it.key_prefix = "a/", it.object_size = kv_block_stride(&config),
                    it.count = config.num_blocks)));
    OWNED(kvmem_layout) objects = regions_lay_out(&config, &region, 1, agent);
    const uint32_t block = 1;
    uint32_t found;
    NIXL(nixl_sim_hold(NIXL_SIM_REGISTER));
    for (int i = 0; i < 2; i++)
        EXPECT(KVMEM_STATUS_TIMED_OUT,
               kvmem_layout_checksum(objects, &block, 1, MILLISECONDS(50), &found, ERR));
    go_on(agent);
    EXPECT_OK(kvmem_layout_checksum(objects, &block, 1, PATIENCE, &found, ERR));
    NIXL(nixl_sim_hold(NIXL_SIM_DEREGISTER));
    const kvmem_status status = kvmem_layout_checksum(objects, &block, 1, MILLISECONDS(50), &found, ERR);
    CHECK(status == KVMEM_STATUS_OK || status == KVMEM_STATUS_TIMED_OUT);
    go_on(agent);
}
