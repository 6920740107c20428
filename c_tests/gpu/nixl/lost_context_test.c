// SPDX-License-Identifier: Apache-2.0
// What went with its context is made known to no agent: NIXL would take its address for whatever lies there
// by now. The agent has no backends, so that NIXL is given nothing before either, and runs over any.
#include "engine.h"
#include "own_context.h"
#include "stance.h"

static kvmem_agent *agent;

/* Before, whether it is taken is NIXL's affair. */
static void expect_offered(kvmem_region *region) {
    OWNED(kvmem_registration) registration = NULL;
    const kvmem_status status = kvmem_region_register(region, agent, &registration, ERR);
    CHECK(status == KVMEM_STATUS_OK || status == KVMEM_STATUS_NIXL);
}

TEST(adopted_memory_is_not_registered_once_its_context_is_destroyed) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    own_context own;
    EXPECT_OK(kvmem_agent_create("near", NULL, &agent, ERR));
    retain_device(0);
    own_context_open(&own, &config);
    GET(kvmem_region *, view, kvmem_region_create_view, own.regions[1], 0, 512);
    expect_offered(own.regions[0]);
    CU(cuCtxDestroy_v2(own.context));
    const uint64_t engine = engine_allocate(0, MIB); /* which may lie where that memory lay */
    for (size_t i = 0; i < own.num_regions; i++) {
        REFUSE(KVMEM_STATUS_INVALID_STATE, gone, kvmem_region_register, own.regions[i], agent);
    }
    REFUSE(KVMEM_STATUS_INVALID_STATE, gone, kvmem_region_register, view, agent);
    kvmem_layout_options options = OPTIONS(kvmem_layout_options, it.config = &config, it.agent = agent,
                                           it.source = KVMEM_LAYOUT_REGIONS, it.regions = own.regions,
                                           it.count = own.num_regions);
    REFUSE(KVMEM_STATUS_INVALID_STATE, gone, kvmem_layout_build, &options);
    GET(kvmem_region_holders, holders, kvmem_region_get_holders, own.regions[0]);
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
    REFUSE(KVMEM_STATUS_INVALID_STATE, gone, kvmem_region_register, region, agent);
    CALL(kvmem_region_destroy(region));
    CALL(kvmem_agent_destroy(agent));
}
