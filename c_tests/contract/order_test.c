// SPDX-License-Identifier: Apache-2.0
// Valid calls in an invalid order: too early, twice, after the end, and with one object in two places.
#include "contract.h"

static world w;

TEST(open_world) {
    kvmem_blob *path = NULL;
    REFUSED_NULLS(path, KVMEM_STATUS_INVALID_STATE, kvmem_nixl_get_path, &path);
    world_open(&w);
}

TEST(a_transfer_has_no_result_before_it_is_submitted) {
    REFUSED(KVMEM_STATUS_INVALID_STATE, kvmem_transfer_poll, w.copy);
    REFUSED(KVMEM_STATUS_INVALID_STATE, kvmem_transfer_wait, w.copy, 0);
    REFUSED(KVMEM_STATUS_INVALID_STATE, kvmem_transfer_poll, w.transfer);
    REFUSED(KVMEM_STATUS_INVALID_STATE, kvmem_transfer_wait, w.transfer, 0);
}

TEST(a_layout_needs_the_objects_it_is_built_from) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    kvmem_layout_options options = OPTIONS(kvmem_layout_options);
    kvmem_layout *layout = NULL;
    INVALID_NULLS(layout, kvmem_layout_build, &options, &layout);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "missing: config, source",
                   kvmem_layout_build(&options, &layout, ERR));
    kvmem_layout_config empty = OPTIONS(kvmem_layout_config);
    kvmem_layout_requirements requirements;
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT,
                   "kvmem_layout_config are missing: order, num_blocks, num_layers, outer_dim, page_size, inner_dim, "
                   "dtype_width",
                   kvmem_layout_get_requirements(&empty, &requirements, ERR));
    options.config = &config;
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "source", kvmem_layout_build(&options, &layout, ERR));
    options.source = KVMEM_LAYOUT_REGIONS;
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "regions", kvmem_layout_build(&options, &layout, ERR));
    options.source = KVMEM_LAYOUT_REGISTRATIONS;
    options.agent = w.agent;
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "regions", kvmem_layout_build(&options, &layout, ERR));
}

TEST(one_region_is_not_two_layers) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    kvmem_region *regions[] = {w.region, w.region, w.region};
    kvmem_registration *registrations[] = {w.registration, w.registration, w.registration};
    kvmem_layout_options options = OPTIONS(kvmem_layout_options, it.config = &config,
                                           it.source = KVMEM_LAYOUT_REGIONS, it.regions = regions,
                                           it.count = 3);
    kvmem_layout *layout = NULL;
    INVALID_NULLS(layout, kvmem_layout_build, &options, &layout);
    options.regions = NULL;
    options.source = KVMEM_LAYOUT_REGISTRATIONS;
    options.registrations = registrations;
    options.agent = w.agent;
    INVALID_NULLS(layout, kvmem_layout_build, &options, &layout);
}

TEST(registering_twice_and_deregistering_twice) {
    kvmem_registration *again = NULL;
    REFUSED_NULLS(again, KVMEM_STATUS_ALREADY_EXISTS, kvmem_region_register, w.region, w.agent, &again);
    EXPECT_OK(kvmem_registration_deregister(w.registration, ERR));
    REFUSED(KVMEM_STATUS_INVALID_STATE, kvmem_registration_deregister, w.registration);
    DESTROYED(kvmem_registration, w.registration);
    EXPECT_OK(kvmem_region_register(w.region, w.agent, &w.registration, ERR));
}

TEST(a_backend_twice) {
    REFUSED(KVMEM_STATUS_ALREADY_EXISTS, kvmem_agent_create_backend, w.agent, "UCX", NULL, 0);
}

TEST(library_twice) {
    EXPECT_OK(kvmem_nixl_load(NULL, ERR));
    REFUSED(KVMEM_STATUS_ALREADY_EXISTS, kvmem_nixl_load, "/nonexistent/libnixl_capi.so");
}

TEST(peers_must_be_known_first) {
    const kvmem_status missing = KVMEM_STATUS_NOT_FOUND;
    REFUSED(missing, kvmem_agent_check_remote_metadata, w.agent, "unknown");
    REFUSED(missing, kvmem_agent_invalidate_remote_metadata, w.agent, "unknown", NULL);
    REFUSED(missing, kvmem_agent_notify, w.agent, "unknown", "x", 1);
    kvmem_layout *layout = NULL; /* exported by `near`; `far` has its metadata, a third agent has not */
    OWNED(kvmem_agent) third = agent_open("third");
    REFUSED_NULLS(layout, missing, kvmem_layout_import, third, kvmem_blob_data(w.blob),
                  kvmem_blob_size(w.blob), &layout);
}

TEST(descriptors_must_have_bytes) {
    kvmem_layout *layout = NULL;
    REFUSED_NULLS(layout, KVMEM_STATUS_CORRUPT, kvmem_layout_import, w.far, "", 0, &layout);
    kvmem_blob *name = NULL;
    INVALID_NULLS(name, kvmem_agent_load_remote_metadata, w.agent, "", 0, &name);
}

TEST(indices_past_the_end) {
    const kvmem_status outside = KVMEM_STATUS_OUT_OF_RANGE;
    kvmem_block block;
    REFUSED_KEEPS(block, outside, kvmem_layout_get_block, w.remote, 7, 0, 0, &block);
    REFUSED_KEEPS(block, outside, kvmem_layout_get_row, w.remote, 7, 0, 0, 0, 0, &block);
    REFUSED_KEEPS(block, outside, kvmem_layout_get_row, w.remote, 0, 0, 0, 0, 1, &block);
    kvmem_layout *part = NULL;
    REFUSED_NULLS(part, KVMEM_STATUS_NOT_FOUND, kvmem_layout_get_part, w.near.layout, "keys", &part);
    kvmem_region *region = NULL;
    REFUSED_NULLS(region, outside, kvmem_layout_get_region, w.near.layout, 1, &region);
    REFUSED_NULLS(region, outside, kvmem_region_create_view, w.region, 65536, 1, &region);
    kvmem_blob *name = NULL;
    REFUSED_NULLS(name, KVMEM_STATUS_NOT_FOUND, kvmem_region_get_agent, w.region, 1, &name);
}

/* A stale layout reports that wherever it is used; its info can be read, and it can be destroyed. */
TEST(an_imported_layout_is_stale_after_its_peer_is_invalidated) {
    EXPECT_OK(kvmem_agent_invalidate_remote_metadata(w.agent, "far", NULL, ERR));
    /* fails here, or during the transfer */
    kvmem_status status = kvmem_transfer_submit(w.transfer, NULL, NULL);
    if (status == KVMEM_STATUS_OK) status = kvmem_transfer_wait(w.transfer, PATIENCE, NULL);
    CHECK_EQ(status, KVMEM_STATUS_STALE);
    const kv_job job = world_job();
    kvmem_transfer *transfer = NULL;
    REFUSED_NULLS(transfer, KVMEM_STATUS_STALE, kvmem_transfer_start, w.near.layout, w.remote, &job.transfer,
                  &job.run, &transfer);
    CHECK_EQ(layout_info(w.remote).locality, KVMEM_LOCALITY_REMOTE);
}

/* An uninitialized error slot is overwritten, never freed. */
TEST(the_error_slot_is_written_not_read) {
    OWNED(kvmem_error) error = POISON;
    CHECK_EQ(kvmem_queue_create(NULL, &error), KVMEM_STATUS_INVALID_ARGUMENT);
    CHECK(error != POISON && error != NULL);
}

TEST_CALL(close_world, world_close(&w))
