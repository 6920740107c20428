// SPDX-License-Identifier: Apache-2.0
// What went with its context is made known to no agent: NIXL would take its address for whatever lies there by now. The
// agent has no backends, so that NIXL is given nothing before either, and runs over any.
#include "engine.h"
#include "own_context.h"
#include "stance.h"

static kvmem_agent *agent;

static void expect_not_registered(kvmem_region *region) {
    kvmem_registration *registration = (kvmem_registration *)&registration;
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, gone, kvmem_region_register(region, agent, &registration, ERR));
    CHECK(registration == NULL);
}

/* Before, whether it is taken is NIXL's affair. */
static void expect_offered(kvmem_region *region) {
    kvmem_registration *registration = NULL;
    const kvmem_status status = kvmem_region_register(region, agent, &registration, ERR);
    CHECK(status == KVMEM_STATUS_OK || status == KVMEM_STATUS_NIXL);
    CALL(kvmem_registration_destroy(registration));
}

TEST(adopted_memory_is_not_registered_once_its_context_is_destroyed) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    own_context own;
    kvmem_region *view = NULL;
    EXPECT_OK(kvmem_agent_create("near", NULL, &agent, ERR));
    retain_device(0);
    own_context_open(&own, &config);
    EXPECT_OK(kvmem_region_create_view(own.regions[1], 0, 512, &view, ERR));
    expect_offered(own.regions[0]);
    CU(cuCtxDestroy_v2(own.context));
    const uint64_t engine = engine_allocate(0, MIB); /* which may lie where that memory lay */
    for (size_t i = 0; i < own.num_regions; i++) {
        expect_not_registered(own.regions[i]);
    }
    expect_not_registered(view);
    kvmem_layout_options options;
    kvmem_layout_options_init(&options, sizeof(options));
    options.config = &config;
    options.agent = agent;
    options.source = KVMEM_LAYOUT_REGIONS;
    options.regions = own.regions;
    options.count = own.num_regions;
    kvmem_layout *layout = NULL;
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, gone, kvmem_layout_build(&options, &layout, ERR));
    kvmem_region_holders holders;
    EXPECT_OK(kvmem_region_get_holders(own.regions[0], &holders, ERR));
    CHECK_EQ(holders.registrations, 0);
    CALL(kvmem_region_destroy(view));
    own_context_close(&own);
    engine_free(0, engine);
    release_device(0);
    CALL(kvmem_agent_destroy(agent));
}

TEST(memory_of_a_device_is_not_registered_once_that_is_reset) {
    EXPECT_OK(kvmem_agent_create("near", NULL, &agent, ERR));
    kvmem_region *region = region_create_on_gpu(MIB);
    expect_offered(region);
    reset_device(0);
    expect_not_registered(region);
    CALL(kvmem_region_destroy(region));
    CALL(kvmem_agent_destroy(agent));
}
