// SPDX-License-Identifier: Apache-2.0
// The functions of raw descriptors: NULL, and handles of a parent process.
#include "contract.h"

static world w;
static kvmem_descriptors *list;
static kvmem_plugins *plugins;
static kvmem_segments *segments;
static kvmem_prepared *local;
static kvmem_prepared *remote;
static kvmem_request *request;
static kvmem_query *query;
static unsigned char memory[4096];

static kvmem_descriptors *list_of(uint32_t memory_type, const void *metadata, size_t size) {
    GET(kvmem_descriptors *, made, kvmem_descriptors_create, memory_type);
    const kvmem_descriptor descriptor = {
        .address = memory_type == KVMEM_MEMORY_FILE ? 0 : (uintptr_t)memory,
        .size = sizeof(memory),
        .metadata = metadata,
        .metadata_size = size,
    };
    EXPECT_OK(kvmem_descriptors_add(made, &descriptor, 1, ERR));
    return made;
}

TEST(open_world) {
    world_open(&w);
    list = list_of(KVMEM_MEMORY_DRAM, NULL, 0);
    OWNED(kvmem_descriptors) files = list_of(KVMEM_MEMORY_FILE, "/dev/null", 9);
    OWN(kvmem_descriptors, there, kvmem_descriptors_create, KVMEM_MEMORY_DRAM);
    GET(kvmem_block, block, kvmem_layout_get_block, w.far_side.layout, 0, 0, 0);
    const kvmem_descriptor of_far = {.address = block.address, .size = 64};
    EXPECT_OK(kvmem_descriptors_add(there, &of_far, 1, ERR));
    EXPECT_OK(kvmem_agent_get_plugins(w.agent, &plugins, ERR));
    EXPECT_OK(kvmem_segments_register(w.agent, list, NULL, &segments, ERR));
    EXPECT_OK(kvmem_agent_query(w.agent, files, NULL, &query, ERR));
    EXPECT_OK(kvmem_descriptors_set(list, 0, &(kvmem_descriptor){.address = (uintptr_t)memory, .size = 64},
                                    ERR));
    EXPECT_OK(kvmem_prepared_create(w.agent, NULL, list, NULL, &local, ERR));
    EXPECT_OK(kvmem_prepared_create(w.agent, "far", there, NULL, &remote, ERR));
    EXPECT_OK(kvmem_request_create(w.agent, KVMEM_REQUEST_READ, list, "far", there, NULL, &request, ERR));
}

TEST(discovery_fails_with_null) {
    kvmem_plugins *made = NULL;
    INVALID_NULLS(made, kvmem_agent_get_plugins, NULL, &made);
    INVALID(kvmem_agent_get_plugins, w.agent, NULL);
    INVALID_NULLS(made, kvmem_agent_get_backends, NULL, &made);
    INVALID(kvmem_agent_get_backends, w.agent, NULL);
    CHECK_EQ(kvmem_plugins_count(NULL), 0);
    kvmem_plugin plugin;
    INVALID_KEEPS(plugin, kvmem_plugins_get, NULL, 0, &plugin);
    INVALID(kvmem_plugins_get, plugins, 0, NULL);
    INVALID(kvmem_agent_connect, NULL, "far", NULL);
    INVALID(kvmem_agent_connect, w.agent, NULL, NULL);
    kvmem_plugins_destroy(NULL);
}

TEST(lists_fail_with_null) {
    kvmem_descriptors *made = NULL;
    const kvmem_descriptor descriptor = {.metadata_size = 1}; /* a size without bytes */
    INVALID(kvmem_descriptors_create, KVMEM_MEMORY_DRAM, NULL);
    INVALID_NULLS(made, kvmem_descriptors_create, 0, &made);
    INVALID(kvmem_descriptors_add, NULL, &descriptor, 1);
    INVALID(kvmem_descriptors_add, list, NULL, 1);
    INVALID(kvmem_descriptors_add, list, &descriptor, 1);
    INVALID(kvmem_descriptors_add_region, NULL, w.region);
    INVALID(kvmem_descriptors_add_region, list, NULL);
    INVALID(kvmem_descriptors_set, NULL, 0, &descriptor);
    INVALID(kvmem_descriptors_set, list, 0, NULL);
    INVALID(kvmem_descriptors_set, list, 0, &descriptor);
    kvmem_descriptor got;
    INVALID_KEEPS(got, kvmem_descriptors_get, NULL, 0, &got);
    INVALID(kvmem_descriptors_get, list, 0, NULL);
    INVALID(kvmem_descriptors_remove, NULL, 0);
    INVALID(kvmem_descriptors_resize, NULL, 0);
    INVALID(kvmem_descriptors_clear, NULL);
    INVALID(kvmem_descriptors_trim, NULL);
    CHECK_EQ(kvmem_descriptors_count(NULL), 0);
    CHECK_EQ(kvmem_descriptors_memory_type(NULL), 0);
    kvmem_blob *blob = NULL;
    INVALID_NULLS(blob, kvmem_descriptors_print, NULL, &blob);
    INVALID(kvmem_descriptors_print, list, NULL);
    INVALID_NULLS(blob, kvmem_descriptors_export, NULL, &blob);
    INVALID(kvmem_descriptors_export, list, NULL);
    INVALID_NULLS(made, kvmem_descriptors_import, NULL, 1, &made);
    INVALID(kvmem_descriptors_import, "x", 1, NULL);
    kvmem_descriptors_destroy(NULL);
    CHECK_EQ(kvmem_descriptors_count(list), 1);
}

TEST(segments_queries_and_views_fail_with_null) {
    kvmem_segments *made = NULL;
    INVALID_NULLS(made, kvmem_segments_register, NULL, list, NULL, &made);
    INVALID_NULLS(made, kvmem_segments_register, w.agent, NULL, NULL, &made);
    INVALID(kvmem_segments_register, w.agent, list, NULL, NULL);
    INVALID(kvmem_segments_deregister, NULL);
    kvmem_segments_destroy(NULL);
    kvmem_query *results = NULL;
    INVALID_NULLS(results, kvmem_agent_query, NULL, list, NULL, &results);
    INVALID_NULLS(results, kvmem_agent_query, w.agent, NULL, NULL, &results);
    INVALID(kvmem_agent_query, w.agent, list, NULL, NULL);
    CHECK_EQ(kvmem_query_count(NULL), 0);
    CHECK_EQ(kvmem_query_count(query), 1);
    kvmem_query_result result;
    INVALID_KEEPS(result, kvmem_query_get, NULL, 0, &result);
    INVALID(kvmem_query_get, query, 0, NULL);
    kvmem_query_destroy(NULL);
    kvmem_memory_view *view = NULL;
    INVALID_NULLS(view, kvmem_memory_view_create, NULL, list, NULL, &view);
    INVALID_NULLS(view, kvmem_memory_view_create, w.agent, NULL, NULL, &view);
    INVALID(kvmem_memory_view_create, w.agent, list, NULL, NULL);
    CHECK(kvmem_memory_view_handle(NULL) == NULL);
    kvmem_memory_view_destroy(NULL);
}

TEST(partial_metadata_and_reports_fail_with_null) {
    kvmem_blob *blob = NULL;
    INVALID_NULLS(blob, kvmem_agent_get_partial_metadata, NULL, list, NULL, &blob);
    INVALID_NULLS(blob, kvmem_agent_get_partial_metadata, w.agent, NULL, NULL, &blob);
    INVALID(kvmem_agent_get_partial_metadata, w.agent, list, NULL, NULL);
    INVALID(kvmem_agent_send_partial_metadata, NULL, list, "127.0.0.1", 1);
    INVALID(kvmem_agent_send_partial_metadata, w.agent, NULL, "127.0.0.1", 1);
    INVALID(kvmem_agent_send_partial_metadata, w.agent, list, NULL, 1);
    INVALID(kvmem_agent_invalidate_local_metadata, NULL, "127.0.0.1", 1);
    INVALID(kvmem_agent_invalidate_local_metadata, w.agent, NULL, 1);
    INVALID(kvmem_agent_invalidate_all_remote_metadata, NULL, NULL);
    INVALID(kvmem_agent_report_notifications, NULL, w.queue, 0);
}

TEST(requests_fail_with_null) {
    kvmem_prepared *prepared = NULL;
    INVALID_NULLS(prepared, kvmem_prepared_create, NULL, NULL, list, NULL, &prepared);
    INVALID_NULLS(prepared, kvmem_prepared_create, w.agent, NULL, NULL, NULL, &prepared);
    INVALID(kvmem_prepared_create, w.agent, NULL, list, NULL, NULL);
    kvmem_prepared_destroy(NULL);
    kvmem_request *made = NULL;
    INVALID_NULLS(made, kvmem_request_create, NULL, 1, list, "far", list, NULL, &made);
    INVALID_NULLS(made, kvmem_request_create, w.agent, 0, list, "far", list, NULL, &made);
    INVALID_NULLS(made, kvmem_request_create, w.agent, 1, NULL, "far", list, NULL, &made);
    INVALID_NULLS(made, kvmem_request_create, w.agent, 1, list, NULL, list, NULL, &made);
    INVALID_NULLS(made, kvmem_request_create, w.agent, 1, list, "far", NULL, NULL, &made);
    INVALID(kvmem_request_create, w.agent, 1, list, "far", list, NULL, NULL);
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
    INVALID_NULLS(layout, kvmem_layout_create_remote, NULL, "far", &config, list, &layout);
    INVALID_NULLS(layout, kvmem_layout_create_remote, w.agent, NULL, &config, list, &layout);
    INVALID_NULLS(layout, kvmem_layout_create_remote, w.agent, "far", NULL, list, &layout);
    INVALID_NULLS(layout, kvmem_layout_create_remote, w.agent, "far", &config, NULL, &layout);
    INVALID(kvmem_layout_create_remote, w.agent, "far", &config, list, NULL);
}

TEST(options_of_another_size_fail) {
    kvmem_nixl_options options = OPTIONS(kvmem_nixl_options);
    options.struct_size = sizeof(void *);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "struct_size", kvmem_agent_connect(w.agent, "far",
            &options, ERR));
    options = OPTIONS(kvmem_nixl_options, it.flags = UINT64_C(1) << 63);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "flags", kvmem_agent_connect(w.agent, "far", &options,
                                                                               ERR));
    options = OPTIONS(kvmem_nixl_options, it.backend_count = 1);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "backends", kvmem_agent_connect(w.agent, "far", &options,
            ERR));
}

/* Handles of a parent. The memory of lists is the child's own, but the library cannot know their use. */
static void use_in_child(void) {
    kvmem_plugin plugin;
    kvmem_descriptor descriptor;
    kvmem_query_result result;
    kvmem_plugins *made = NULL;
    FORKED(kvmem_agent_get_plugins, w.agent, &made);
    FORKED(kvmem_plugins_get, plugins, 0, &plugin);
    FORKED(kvmem_agent_connect, w.agent, "far", NULL);
    FORKED(kvmem_descriptors_get, list, 0, &descriptor);
    FORKED(kvmem_descriptors_clear, list);
    FORKED(kvmem_segments_deregister, segments);
    FORKED(kvmem_query_get, query, 0, &result);
    FORKED(kvmem_request_post, request, NULL, 0);
    FORKED(kvmem_request_poll, request);
    FORKED(kvmem_request_wait, request, KVMEM_TIMEOUT_FOREVER);
    FORKED(kvmem_agent_report_notifications, w.agent, w.queue, 0);
    kvmem_request_destroy(request);
    kvmem_prepared_destroy(local);
    kvmem_segments_destroy(segments);
    kvmem_descriptors_destroy(list);
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
    kvmem_descriptors_destroy(list);
    world_close(&w);
}
