// SPDX-License-Identifier: Apache-2.0
// A published layout that is reachable only through NIXL: no client gets its memory. Needs NIXL.
#include "server.h"

static kvmem_layout *build(kvmem_agent *agent) {
    kvmem_layout_config config = {.struct_size = sizeof(config), .order = KVMEM_ORDER_FULLY_CONTIGUOUS};
    config.num_blocks = 4;
    config.num_layers = 2;
    config.outer_dim = 2;
    config.page_size = 4;
    config.inner_dim = 64;
    config.dtype_width = 2;
    const kvmem_system_options memory = {.struct_size = sizeof(memory), .flags = KVMEM_SYSTEM_SHAREABLE};
    kvmem_layout_options options = {.struct_size = sizeof(options), .config = &config, .agent = agent};
    options.source = KVMEM_LAYOUT_ALLOCATE;
    options.system = &memory;
    return MADE(kvmem_layout, kvmem_layout_build, &options);
}

/* A read-only fetch would have to send the memory, which was not requested. */
TEST(a_read_only_fetch_gets_no_memory_either) {
    OPENED(server, server, NULL);
    OWNED(kvmem_agent) agent = agent_open("owner");
    OWNED(kvmem_layout) layout = build(agent);
    const kvmem_share_options by_nixl = {.struct_size = sizeof(by_nixl), .transport = KVMEM_SHARE_REMOTE};
    OWN(kvmem_share, share, kvmem_share_create_layout, layout, &by_nixl);
    fetch_request request = request_of(&server);
    strcpy(request.name, "remote");
    EXPECT_OK(kvmem_broker_publish(server.broker, "remote", share, NULL, &request.token, ERR));
    kvmem_fetch_options options = request_options(&request);
    GET(kvmem_share *, fetched, kvmem_share_fetch, &options, PATIENCE);
    CHECK_EQ(share_info(fetched).num_fds, 0);
    kvmem_share_destroy(fetched);
    options.flags = KVMEM_SHARE_READ_ONLY;
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "read-only", kvmem_share_fetch(&options, PATIENCE, &fetched, ERR));
    CHECK(fetched == NULL);
}
