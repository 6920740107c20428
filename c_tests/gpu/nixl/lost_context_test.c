// SPDX-License-Identifier: Apache-2.0
// Memory that was destroyed with its context cannot be registered, because NIXL would register other memory
// at its address. The agent has no backends, so that the test works with every NIXL and its stand-in.
#include "engine.h"
#include "own_context.h"
#include "caller_context.h"

CONTEXTS_END

/* Before the memory is lost, kvmem passes it to NIXL, which may reject it. */
static void expect_passed_to_nixl(kvmem_region *region, kvmem_agent *agent) {
    OWNED(kvmem_registration) registration = NULL;
    const kvmem_status status = kvmem_region_register(region, agent, &registration, ERR);
    CHECK(status == KVMEM_STATUS_OK || status == KVMEM_STATUS_NIXL);
}

TEST(adopted_memory_cannot_be_registered_after_its_context_is_destroyed) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    RETAIN_DEVICE(0);
    OWN(kvmem_agent, agent, kvmem_agent_create, "near", NULL);
    OPENED(own_context, own, &config);
    OWN(kvmem_region, view, kvmem_region_create_view, own.regions[1], 0, 512);
    expect_passed_to_nixl(own.regions[0], agent);
    own_context_destroy(&own);
    const uint64_t engine = engine_allocate(0, MIB); /* may have the address of that memory */
    for (size_t i = 0; i < own.num_regions; i++)
        REFUSE(KVMEM_STATUS_INVALID_STATE, context_destroyed, kvmem_region_register, own.regions[i], agent);
    REFUSE(KVMEM_STATUS_INVALID_STATE, context_destroyed, kvmem_region_register, view, agent);
    kvmem_layout_options options = OPTIONS(kvmem_layout_options, it.config = &config, it.agent = agent,
                                           it.source = KVMEM_LAYOUT_REGIONS, it.regions = own.regions,
                                           it.count = own.num_regions);
    REFUSE(KVMEM_STATUS_INVALID_STATE, context_destroyed, kvmem_layout_build, &options);
    GET(kvmem_region_holders, holders, kvmem_region_get_holders, own.regions[0]);
    CHECK_EQ(holders.registrations, 0);
    engine_free(0, engine);
}

TEST(device_memory_cannot_be_registered_after_a_reset) {
    OWN(kvmem_agent, agent, kvmem_agent_create, "near", NULL);
    OWNED(kvmem_region) region = region_create_on_gpu(MIB);
    expect_passed_to_nixl(region, agent);
    reset_device(0);
    REFUSE(KVMEM_STATUS_INVALID_STATE, context_destroyed, kvmem_region_register, region, agent);
}
