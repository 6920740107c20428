// SPDX-License-Identifier: Apache-2.0
// The functions of raw descriptors: NULL, and handles of a parent process.
#include "contract.h"

static world w;
static kvmem_nixl_descriptor list[1];
static kvmem_plugins *plugins;
static kvmem_segments *segments;
static kvmem_prepared *local;
static kvmem_prepared *remote;
static kvmem_request *request;
static kvmem_query *query;
static unsigned char memory[4096];

TEST(open_world) {
    world_open(&w);
    list[0] = memory_at(memory, sizeof(memory));
    const kvmem_nixl_descriptor file = {
        .size = sizeof(memory), .memory_type = KVMEM_MEMORY_FILE, .metadata = "/dev/null", .metadata_size = 9};
    GET(kvmem_block, block, kvmem_layout_get_block, w.far_side.layout, 0, 0, 0);
    const kvmem_nixl_descriptor there = {.address = block.address, .size = 64,
                                         .memory_type = KVMEM_MEMORY_DRAM};
    EXPECT_OK(kvmem_agent_get_plugins(w.agent, &plugins, ERR));
    EXPECT_OK(kvmem_segments_register(w.agent, list, 1, NULL, &segments, ERR));
    EXPECT_OK(kvmem_agent_query(w.agent, &file, 1, NULL, KVMEM_TIMEOUT_FOREVER, &query, ERR));
    list[0].size = 64;
    EXPECT_OK(kvmem_prepared_create(w.agent, NULL, list, 1, NULL, &local, ERR));
    EXPECT_OK(kvmem_prepared_create(w.agent, "far", &there, 1, NULL, &remote, ERR));
    EXPECT_OK(kvmem_request_create(w.agent, KVMEM_REQUEST_READ, list, "far", &there, 1, NULL, &request, ERR));
}

TEST(discovery_fails_with_null) {
    kvmem_plugins *made = NULL;
    INVALID_NULLS(made, kvmem_agent_get_plugins, NULL, &made);
    INVALID(kvmem_agent_get_plugins, w.agent, NULL);
    INVALID_NULLS(made, kvmem_agent_get_backends, NULL, &made);
    INVALID(kvmem_agent_get_backends, w.agent, NULL);
    CHECK(plugins->items != NULL);
    INVALID(kvmem_agent_connect, NULL, "far", NULL, 0);
    INVALID(kvmem_agent_connect, w.agent, NULL, NULL, 0);
    kvmem_plugins_destroy(NULL);
}

TEST(descriptors_of_a_region_fail_with_null) {
    kvmem_nixl_descriptor got;
    size_t count = 77;
    INVALID_KEEPS(got, kvmem_region_get_descriptors, NULL, &got, 1, &count);
    INVALID_KEEPS(count, kvmem_region_get_descriptors, NULL, &got, 1, &count);
    INVALID(kvmem_region_get_descriptors, w.region, NULL, 1, &count);
    INVALID(kvmem_region_get_descriptors, w.region, &got, 1, NULL);
}

TEST(segments_queries_and_views_fail_with_null) {
    kvmem_segments *made = NULL;
    INVALID_NULLS(made, kvmem_segments_register, NULL, list, 1, NULL, &made);
    INVALID_NULLS(made, kvmem_segments_register, w.agent, NULL, 1, NULL, &made);
    INVALID(kvmem_segments_register, w.agent, list, 1, NULL, NULL);
    INVALID(kvmem_segments_deregister, NULL);
    kvmem_segments_destroy(NULL);
    kvmem_query *results = NULL;
    INVALID_NULLS(results, kvmem_agent_query, NULL, list, 1, NULL, 0, &results);
    INVALID_NULLS(results, kvmem_agent_query, w.agent, NULL, 1, NULL, 0, &results);
    INVALID(kvmem_agent_query, w.agent, list, 1, NULL, 0, NULL);
    CHECK_EQ(query->count, 1);
    CHECK(query->items != NULL);
    kvmem_query_destroy(NULL);
    kvmem_memory_view *view = NULL;
    void *handle = NULL;
    INVALID_NULLS(view, kvmem_memory_view_create, NULL, list, 1, NULL, &handle, &view);
    INVALID_NULLS(view, kvmem_memory_view_create, w.agent, NULL, 1, NULL, &handle, &view);
    INVALID(kvmem_memory_view_create, w.agent, list, 1, NULL, NULL, &view);
    INVALID(kvmem_memory_view_create, w.agent, list, 1, NULL, &handle, NULL);
    kvmem_memory_view_destroy(NULL);
}

TEST(partial_metadata_and_reports_fail_with_null) {
    kvmem_blob *blob = NULL;
    INVALID_NULLS(blob, kvmem_agent_get_partial_metadata, NULL, list, 1, NULL, &blob);
    INVALID_NULLS(blob, kvmem_agent_get_partial_metadata, w.agent, NULL, 1, NULL, &blob);
    INVALID(kvmem_agent_get_partial_metadata, w.agent, list, 1, NULL, NULL);
    INVALID(kvmem_agent_send_partial_metadata, NULL, list, 1, "127.0.0.1", 1);
    INVALID(kvmem_agent_send_partial_metadata, w.agent, NULL, 1, "127.0.0.1", 1);
    INVALID(kvmem_agent_send_partial_metadata, w.agent, list, 1, NULL, 1);
    INVALID(kvmem_agent_invalidate_local_metadata, NULL, "127.0.0.1", 1);
    INVALID(kvmem_agent_invalidate_local_metadata, w.agent, NULL, 1);
    INVALID(kvmem_agent_invalidate_remote_metadata, NULL, NULL, NULL);
    INVALID(kvmem_agent_report_notifications, NULL, w.queue, 0);
}

TEST(requests_fail_with_null) {
    kvmem_prepared *prepared = NULL;
    INVALID_NULLS(prepared, kvmem_prepared_create, NULL, NULL, list, 1, NULL, &prepared);
    INVALID_NULLS(prepared, kvmem_prepared_create, w.agent, NULL, NULL, 1, NULL, &prepared);
    INVALID(kvmem_prepared_create, w.agent, NULL, list, 1, NULL, NULL);
    kvmem_prepared_destroy(NULL);
    kvmem_request *made = NULL;
    INVALID_NULLS(made, kvmem_request_create, NULL, 1, list, "far", list, 1, NULL, &made);
    INVALID_NULLS(made, kvmem_request_create, w.agent, 0, list, "far", list, 1, NULL, &made);
    INVALID_NULLS(made, kvmem_request_create, w.agent, 1, NULL, "far", list, 1, NULL, &made);
    INVALID_NULLS(made, kvmem_request_create, w.agent, 1, list, NULL, list, 1, NULL, &made);
    INVALID_NULLS(made, kvmem_request_create, w.agent, 1, list, "far", NULL, 1, NULL, &made);
    INVALID(kvmem_request_create, w.agent, 1, list, "far", list, 1, NULL, NULL);
    const uint32_t zero = 0;
    INVALID_NULLS(made, kvmem_request_make, 1, NULL, &zero, remote, &zero, 1, NULL, &made);
    INVALID_NULLS(made, kvmem_request_make, 1, local, NULL, remote, &zero, 1, NULL, &made);
    INVALID_NULLS(made, kvmem_request_make, 1, local, &zero, NULL, &zero, 1, NULL, &made);
    INVALID_NULLS(made, kvmem_request_make, 1, local, &zero, remote, NULL, 1, NULL, &made);
    INVALID(kvmem_request_make, 1, local, &zero, remote, &zero, 1, NULL, NULL);
    INVALID(kvmem_request_post, NULL, NULL, 0);
    INVALID(kvmem_request_post, request, NULL, 1);
    INVALID(kvmem_request_poll, NULL);
    INVALID(kvmem_request_wait, NULL, 0);
    kvmem_blob *blob = NULL;
    INVALID_NULLS(blob, kvmem_request_get_backend, NULL, &blob);
    INVALID(kvmem_request_get_backend, request, NULL);
    kvmem_request_cost cost;
    INVALID_KEEPS(cost, kvmem_request_estimate, NULL, &cost);
    INVALID(kvmem_request_estimate, request, NULL);
    kvmem_request_telemetry telemetry;
    INVALID_KEEPS(telemetry, kvmem_request_get_telemetry, NULL, &telemetry);
    INVALID(kvmem_request_get_telemetry, request, NULL);
    kvmem_agent_telemetry sums;
    INVALID_KEEPS(sums, kvmem_agent_get_telemetry, NULL, &sums);
    INVALID(kvmem_agent_get_telemetry, w.agent, NULL);
    kvmem_request_destroy(NULL);
}

TEST(a_remote_layout_fails_with_null) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    kvmem_layout *layout = NULL;
    INVALID_NULLS(layout, kvmem_layout_create_remote, NULL, "far", &config, list, 1, &layout);
    INVALID_NULLS(layout, kvmem_layout_create_remote, w.agent, NULL, &config, list, 1, &layout);
    INVALID_NULLS(layout, kvmem_layout_create_remote, w.agent, "far", NULL, list, 1, &layout);
    INVALID_NULLS(layout, kvmem_layout_create_remote, w.agent, "far", &config, NULL, 1, &layout);
    INVALID(kvmem_layout_create_remote, w.agent, "far", &config, list, 1, NULL);
}

TEST(options_of_another_size_fail) {
    kvmem_nixl_options options = OPTIONS(kvmem_nixl_options);
    options.struct_size = sizeof(void *);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "struct_size", kvmem_agent_connect(w.agent, "far",
            &options, 0, ERR));
    options = OPTIONS(kvmem_nixl_options, it.flags = UINT64_C(1) << 63);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "flags", kvmem_agent_connect(w.agent, "far",
            &options, 0, ERR));
    options = OPTIONS(kvmem_nixl_options, it.backend_count = 1);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "backends", kvmem_agent_connect(w.agent, "far",
            &options, 0, ERR));
}

/* Handles of a parent. */
static void use_in_child(void) {
    kvmem_nixl_descriptor descriptor;
    size_t count;
    kvmem_plugins *made = NULL;
    FORKED(kvmem_agent_get_plugins, w.agent, &made);
    FORKED(kvmem_agent_connect, w.agent, "far", NULL, 0);
    FORKED(kvmem_region_get_descriptors, w.region, &descriptor, 1, &count);
    FORKED(kvmem_segments_deregister, segments);
    FORKED(kvmem_request_post, request, NULL, 0);
    FORKED(kvmem_request_poll, request);
    FORKED(kvmem_request_wait, request, KVMEM_TIMEOUT_FOREVER);
    FORKED(kvmem_agent_report_notifications, w.agent, w.queue, 0);
    kvmem_request_destroy(request);
    kvmem_prepared_destroy(local);
    kvmem_segments_destroy(segments);
}

TEST(handles_of_a_parent_fail_in_a_child) {
    in_a_forked_child(use_in_child);
    EXPECT_OK(kvmem_request_post(request, NULL, 0, ERR));
    EXPECT_OK(kvmem_request_wait(request, PATIENCE, ERR));
}

TEST(close_world) {
    kvmem_request_destroy(request);
    kvmem_prepared_destroy(local);
    kvmem_prepared_destroy(remote);
    kvmem_segments_destroy(segments);
    kvmem_query_destroy(query);
    kvmem_plugins_destroy(plugins);
    world_close(&w);
}
