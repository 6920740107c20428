// SPDX-License-Identifier: Apache-2.0
// Layouts exported to another agent: what the importer gets, and what cannot be exported or imported.
#include "harness.h"

KV_PEER_ROLE

/* The importing agent has no metadata of the exporter, or metadata that does not cover the layout. */
/* An imported layout has the addresses of the exported one. */
static void check_same_addresses(const kvmem_layout *imported, const kvmem_layout *original,
                                 const kvmem_layout_config *config) {
    for (uint64_t block = 0; block < config->num_blocks; block++) {
        for (uint64_t layer = 0; layer < config->num_layers; layer++) {
            for (uint64_t outer = 0; outer < config->outer_dim; outer++) {
                GET(kvmem_block, there, kvmem_layout_get_block, original, block, layer, outer);
                GET(kvmem_block, here, kvmem_layout_get_block, imported, block, layer, outer);
                CHECK_EQ(here.address, there.address);
                CHECK_EQ(here.size, there.size);
            }
        }
    }
}

static void check_same_info(const kvmem_layout *imported, const kvmem_layout *original) {
    GET(kvmem_layout_info, there, kvmem_layout_get_info, original);
    GET(kvmem_layout_info, here, kvmem_layout_get_info, imported);
    CHECK_EQ(there.locality, KVMEM_LOCALITY_REGISTERED);
    CHECK_EQ(here.locality, KVMEM_LOCALITY_REMOTE);
    CHECK_STR(here.agent, there.agent);
    CHECK_BYTES(here.bases, there.bases, there.num_regions * sizeof(*there.bases));
    here.locality = there.locality;
    here.agent = there.agent;
    here.bases = there.bases;
    CHECK_BYTES(&here, &there, sizeof(here));
}

TEST(an_imported_layout_equals_the_exported_one) {
    OWNED(kvmem_agent) near = agent_open("near");
    OWNED(kvmem_agent) far = agent_open("far");
    for (size_t kind = 0; kind < KV_NUM_KINDS; kind++) {
        kvmem_layout_config config = WITH(kv_config(&kv_kinds[kind]), it.alignment = 64, it.num_heads = 2);
        OPENED(kv_side, side, &config, far, 1);
        CLEANUP(message_free) message metadata = agent_metadata(far);
        agent_load(near, &metadata);
        kvmem_layout *imported = layout_import(near, side.layout);
        check_same_addresses(imported, side.layout, &config);
        check_same_info(imported, side.layout);
        CHECK_STR(layout_info(imported).agent, "far");
        kvmem_layout_destroy(imported);
        EXPECT_OK(kvmem_agent_invalidate_remote_metadata(near, "far", NULL, ERR));
    }
}

TEST(an_imported_layout_has_no_regions_and_cannot_be_exported) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OWNED(kvmem_agent) near = agent_open("near");
    OPENED(kv_peer, peer, "far", &config, 1);
    kv_peer_meet(&peer, near);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "", kvmem_layout_get_region, peer.model.layout, 0);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "", kvmem_layout_export, peer.model.layout);
}

TEST(importing_a_layout_needs_metadata) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OWNED(kvmem_agent) near = agent_open("near");
    OPENED(kv_peer, peer, "far", &config, 1);
    REFUSE(KVMEM_STATUS_NOT_FOUND, "far", kvmem_layout_import, near, (&peer.descriptor)->data,
           (&peer.descriptor)->size);
    kv_peer_meet(&peer, near);
}

/* Metadata taken before the layout was registered does not cover its memory. */
TEST(metadata_must_cover_the_layout) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OWNED(kvmem_agent) near = agent_open("near");
    OWNED(kvmem_agent) far = agent_open("far");
    CLEANUP(message_free) message too_early = agent_metadata(far);
    OPENED(kv_side, side, &config, far, 1);
    CLEANUP(message_free) message descriptor = layout_descriptor(side.layout);
    agent_load(near, &too_early);
    REFUSE(KVMEM_STATUS_NOT_FOUND, "far", kvmem_layout_import, near, descriptor.data, descriptor.size);
}

/* Offsets in a file have no meaning in another process. */
TEST(a_file_is_not_exported) {
    OWNED(kvmem_agent) agent = agent_open("files");
    EXPECT_OK(kvmem_agent_create_backend(agent, "POSIX", NULL, 0, ERR));
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    kvmem_disk_options disk = OPTIONS(kvmem_disk_options);
    kvmem_layout_options options = OPTIONS(kvmem_layout_options, it.config = &config, it.agent = agent,
                                           it.source = KVMEM_LAYOUT_ALLOCATE, it.disk = &disk);
    OWN(kvmem_layout, layout, kvmem_layout_build, &options);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "disk", kvmem_layout_export, layout);
}

/* If no backend accepts the memory, the memory that was already allocated is freed. */
TEST(an_agent_that_cannot_register_builds_nothing) {
    OWNED(kvmem_agent) bare = NULL;
    EXPECT_OK(kvmem_nixl_load(NULL, ERR));
    EXPECT_OK(kvmem_agent_create("bare", NULL, &bare, ERR));
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    kvmem_system_options system = OPTIONS(kvmem_system_options);
    kvmem_layout_options options = OPTIONS(kvmem_layout_options, it.config = &config, it.agent = bare,
                                           it.source = KVMEM_LAYOUT_ALLOCATE, it.system = &system);
    REFUSE(KVMEM_STATUS_NIXL, "bare", kvmem_layout_build, &options);
}

/* The descriptor contains the order and the strides. */
TEST(an_import_has_the_order_of_the_exported_layout) {
    static const char *const orders[] = {"L/BHNOC", "LO/BHNC", "OBNLHC", "L/OBHNC"};
    OWNED(kvmem_agent) near = agent_open("near");
    OWNED(kvmem_agent) far = agent_open("far");
    for (size_t i = 0; i < NUM(orders); i++) {
        const kvmem_layout_config config = WITH(kv_config(&kv_kinds[0]), it.num_heads = 2,
                                                it.order = orders[i], it.head_stride = i == 3 ? 64 : 0);
        const kvmem_system_options system = OPTIONS(kvmem_system_options);
        OWN(kvmem_layout, original, kvmem_layout_build,
            REF(OPTIONS(kvmem_layout_options, it.config = &config, it.agent = far,
                        it.source = KVMEM_LAYOUT_ALLOCATE, it.system = &system)));
        CLEANUP(message_free) message metadata = agent_metadata(far);
        agent_load(near, &metadata);
        OWNED(kvmem_layout) imported = layout_import(near, original);
        check_same_info(imported, original);
        for (uint64_t row = 0; row < config.num_layers * config.outer_dim * config.page_size * 2; row++) {
            const uint64_t head = row % 2, token = row / 2 % config.page_size;
            const uint64_t outer = row / 2 / config.page_size % config.outer_dim;
            const uint64_t layer = row / 2 / config.page_size / config.outer_dim;
            GET(kvmem_block, there, kvmem_layout_get_row, original, 5, layer, outer, token, head);
            GET(kvmem_block, here, kvmem_layout_get_row, imported, 5, layer, outer, token, head);
            CHECK_BYTES(&here, &there, sizeof(here));
        }
        EXPECT_OK(kvmem_agent_invalidate_remote_metadata(near, "far", NULL, ERR));
    }
}
