// SPDX-License-Identifier: Apache-2.0
// A layout described to another process: what the importer sees, and what must not be exported or imported.
#include "harness.h"

KV_PEER_ROLE

/* The agent knows nothing, or too little, of the one that exported it. */
static void refuse_import(kvmem_agent *agent, const message *descriptor, const char *part) {
    kvmem_layout *layout = (kvmem_layout *)&layout;
    EXPECT_MESSAGE(KVMEM_STATUS_NOT_FOUND, part,
                   kvmem_layout_import(agent, descriptor->data, descriptor->size, &layout, ERR));
    CHECK(layout == NULL);
}

/* An imported layout lies where the exported one does. */
static void check_same_addresses(const kvmem_layout *imported, const kvmem_layout *original,
                                 const kvmem_layout_config *config) {
    for (uint64_t block = 0; block < config->num_blocks; block++) {
        for (uint64_t layer = 0; layer < config->num_layers; layer++) {
            for (uint64_t outer = 0; outer < config->outer_dim; outer++) {
                kvmem_block there;
                kvmem_block here;
                EXPECT_OK(kvmem_layout_get_block(original, block, layer, outer, &there, ERR));
                EXPECT_OK(kvmem_layout_get_block(imported, block, layer, outer, &here, ERR));
                CHECK_EQ(here.address, there.address);
                CHECK_EQ(here.size, there.size);
            }
        }
    }
}

static void check_same_info(const kvmem_layout *imported, const kvmem_layout *original) {
    kvmem_layout_info there;
    kvmem_layout_info here;
    EXPECT_OK(kvmem_layout_get_info(original, &there, ERR));
    EXPECT_OK(kvmem_layout_get_info(imported, &here, ERR));
    CHECK_EQ(there.locality, KVMEM_LOCALITY_REGISTERED);
    CHECK_EQ(here.locality, KVMEM_LOCALITY_REMOTE);
    here.locality = there.locality;
    CHECK_BYTES(&here, &there, sizeof(here));
}

TEST(an_import_is_the_exported_layout) {
    kvmem_agent *near = agent_open("near");
    kvmem_agent *far = agent_open("far");
    for (size_t kind = 0; kind < KV_NUM_KINDS; kind++) {
        kvmem_layout_config config = kv_config(&kv_kinds[kind]);
        config.alignment = 64;
        config.num_heads = 2;
        kv_side side;
        kv_side_open(&side, &config, far, 1);
        message metadata = agent_metadata(far);
        agent_load(near, &metadata);
        message descriptor = layout_descriptor(side.layout);
        kvmem_layout *imported = NULL;
        EXPECT_OK(kvmem_layout_import(near, descriptor.data, descriptor.size, &imported, ERR));
        check_same_addresses(imported, side.layout, &config);
        check_same_info(imported, side.layout);
        char name[8];
        size_t size = 0;
        EXPECT_OK(kvmem_layout_get_agent(imported, name, sizeof(name), &size, ERR));
        CHECK_STR(name, "far");
        kvmem_layout_destroy(imported);
        EXPECT_OK(kvmem_agent_invalidate_remote_metadata(near, "far", ERR));
        kv_side_close(&side);
        free(metadata.data);
        free(descriptor.data);
    }
    kvmem_agent_destroy(near);
    kvmem_agent_destroy(far);
}

TEST(an_import_has_no_regions_here_and_is_not_exported_on) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    kvmem_agent *near = agent_open("near");
    kv_peer peer;
    kv_peer_start(&peer, "far", &config, 1);
    kv_peer_meet(&peer, near);
    kvmem_region *region = (kvmem_region *)&config;
    EXPECT(KVMEM_STATUS_UNSUPPORTED, kvmem_layout_get_region(peer.model.layout, 0, &region, ERR));
    CHECK(region == NULL);
    kvmem_blob *descriptor = (kvmem_blob *)&config;
    EXPECT(KVMEM_STATUS_UNSUPPORTED, kvmem_layout_export(peer.model.layout, &descriptor, ERR));
    CHECK(descriptor == NULL);
    kv_peer_stop(&peer);
    kvmem_agent_destroy(near);
}

TEST(metadata_comes_before_the_layout) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    kvmem_agent *near = agent_open("near");
    kv_peer peer;
    kv_peer_start(&peer, "far", &config, 1);
    refuse_import(near, &peer.descriptor, "far");
    kv_peer_meet(&peer, near);
    kv_peer_stop(&peer);
    kvmem_agent_destroy(near);
}

/* Metadata taken before the layout was registered does not cover its memory. */
TEST(metadata_must_cover_the_layout) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    kvmem_agent *near = agent_open("near");
    kvmem_agent *far = agent_open("far");
    message too_early = agent_metadata(far);
    kv_side side;
    kv_side_open(&side, &config, far, 1);
    message descriptor = layout_descriptor(side.layout);
    agent_load(near, &too_early);
    refuse_import(near, &descriptor, "far");
    kv_side_close(&side);
    free(too_early.data);
    free(descriptor.data);
    kvmem_agent_destroy(near);
    kvmem_agent_destroy(far);
}

/* The offsets of a file mean nothing in another process. */
TEST(a_file_is_not_exported) {
    kvmem_agent *agent = agent_open("files");
    EXPECT_OK(kvmem_agent_create_backend(agent, "POSIX", NULL, 0, ERR));
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    kvmem_disk_options disk;
    kvmem_disk_options_init(&disk, sizeof(disk));
    kvmem_layout_options options;
    kvmem_layout_options_init(&options, sizeof(options));
    options.config = &config;
    options.agent = agent;
    options.source = KVMEM_LAYOUT_ALLOCATE;
    options.disk = &disk;
    kvmem_layout *layout = NULL;
    EXPECT_OK(kvmem_layout_build(&options, &layout, ERR));
    kvmem_blob *descriptor = (kvmem_blob *)&config;
    EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "disk", kvmem_layout_export(layout, &descriptor, ERR));
    CHECK(descriptor == NULL);
    kvmem_layout_destroy(layout);
    kvmem_agent_destroy(agent);
}

/* Without a backend for the memory, what was allocated already is given back. */
TEST(an_agent_that_cannot_register_builds_nothing) {
    kvmem_agent *bare = NULL;
    EXPECT_OK(kvmem_nixl_load(NULL, ERR));
    EXPECT_OK(kvmem_agent_create("bare", NULL, &bare, ERR));
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    kvmem_system_options system;
    kvmem_system_options_init(&system, sizeof(system));
    kvmem_layout_options options;
    kvmem_layout_options_init(&options, sizeof(options));
    options.config = &config;
    options.agent = bare;
    options.source = KVMEM_LAYOUT_ALLOCATE;
    options.system = &system;
    kvmem_layout *layout = (kvmem_layout *)&config;
    EXPECT_MESSAGE(KVMEM_STATUS_NIXL, "bare", kvmem_layout_build(&options, &layout, ERR));
    CHECK(layout == NULL);
    kvmem_agent_destroy(bare);
}
