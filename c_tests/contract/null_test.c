// SPDX-License-Identifier: Apache-2.0
// NULL in every pointer argument of every function: the call fails, or succeeds if the header allows NULL,
// and has no other effect.
#include "contract.h"

static world w;

#define WITH_NULL
#include "simple_calls.h" /* generated */

TEST_CALL(open_world, world_open(&w))

TEST(functions_of_numbers) { simple_calls(); }

TEST(status_version_and_errors) {
    CHECK(kvmem_status_name(KVMEM_STATUS_OK) != NULL);
    CHECK(kvmem_status_message(KVMEM_STATUS_OK) != NULL);
    CHECK(kvmem_version_string() != NULL);
    CHECK_EQ(kvmem_abi_version(), KVMEM_ABI_VERSION);
    CHECK(kvmem_method_name(0) != NULL);
    CHECK_EQ(kvmem_error_status(NULL), KVMEM_STATUS_OK);
    CHECK_STR(kvmem_error_message(NULL, NULL), "");
    kvmem_error_cause cause;
    CHECK_EQ(kvmem_error_get_cause(NULL, &cause), KVMEM_STATUS_INVALID_ARGUMENT);
    EXPECT(KVMEM_STATUS_INVALID_ARGUMENT, kvmem_queue_create(NULL, ERR));
    CHECK_EQ(kvmem_error_get_cause(test_last_error(), NULL), KVMEM_STATUS_INVALID_ARGUMENT);
    CHECK_HAS(kvmem_error_message(test_last_error(), NULL), "queue");
    kvmem_error_destroy(NULL);
}

TEST(log_and_libraries) {
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_TRACE, NULL, NULL, ERR)); /* NULL removes the callback */
    EXPECT_OK(kvmem_nixl_load(NULL, ERR)); /* NULL: the library named by the environment */
    INVALID(kvmem_nixl_get_path, NULL);
}

TEST(statistics) {
    INVALID(kvmem_statistics_text, NULL);
    INVALID(kvmem_trace_export, NULL);
    EXPECT_OK(kvmem_statistics_serve(NULL));
    EXPECT_OK(kvmem_statistics_serve(ERR)); /* it serves already */
    INVALID(kvmem_statistics_get, NULL);
    INVALID(kvmem_statistics_get_method, KVMEM_METHOD_MEMCPY, NULL);
}

TEST(blobs) {
    CHECK(kvmem_blob_data(NULL) == NULL);
    CHECK_EQ(kvmem_blob_size(NULL), 0);
    kvmem_blob_destroy(NULL);
}

TEST(regions) {
    kvmem_system_options system = OPTIONS(kvmem_system_options);
    kvmem_disk_options disk = OPTIONS(kvmem_disk_options);
    kvmem_adopt_options adopt = OPTIONS(kvmem_adopt_options);
    system.size = disk.size = adopt.size = 4096;
    kvmem_region *region = NULL;
    INVALID_NULLS(region, kvmem_region_create_system, NULL, &region);
    INVALID(kvmem_region_create_system, &system, NULL);
    INVALID_NULLS(region, kvmem_region_create_disk, NULL, &region);
    INVALID(kvmem_region_create_disk, &disk, NULL);
    INVALID_NULLS(region, kvmem_region_adopt_host, NULL, &region);
    INVALID_NULLS(region, kvmem_region_adopt_host, &adopt, &region); /* its address is NULL */
    adopt.address = &w;
    INVALID(kvmem_region_adopt_host, &adopt, NULL);
    kvmem_adopt_memfd_options file = OPTIONS(kvmem_adopt_memfd_options);
    INVALID_NULLS(region, kvmem_region_adopt_memfd, NULL, &region);
    INVALID_NULLS(region, kvmem_region_adopt_memfd, &file, &region); /* fd 0 is not a memory file */
    INVALID(kvmem_region_adopt_memfd, &file, NULL);
    kvmem_object_options objects = OPTIONS(kvmem_object_options, it.object_size = 1, it.count = 1);
    INVALID_NULLS(region, kvmem_region_create_object, NULL, &region);
    INVALID_NULLS(region, kvmem_region_create_object, &objects, &region); /* its prefix is NULL */
    objects.key_prefix = "a";
    INVALID(kvmem_region_create_object, &objects, NULL);
    kvmem_block_options block = OPTIONS(kvmem_block_options, it.size = 1);
    INVALID_NULLS(region, kvmem_region_create_block, NULL, &region);
    INVALID(kvmem_region_create_block, &block, NULL);
    block.metadata_size = 1;
    INVALID_NULLS(region, kvmem_region_create_block, &block, &region); /* its metadata is NULL */
    INVALID_NULLS(region, kvmem_region_create_view, NULL, 0, 1, &region);
    INVALID(kvmem_region_create_view, w.region, 0, 1, NULL);
    CHECK_STR(test_last_message(), "view is NULL");
    kvmem_region_destroy(NULL);
}

TEST(region_infos) {
    kvmem_blob *text = NULL;
    INVALID_NULLS(text, kvmem_region_get_path, NULL, &text);
    INVALID(kvmem_region_get_path, w.file, NULL);
    CHECK_STR(test_last_message(), "path is NULL");
    INVALID_NULLS(text, kvmem_region_get_agent, NULL, 0, &text);
    INVALID(kvmem_region_get_agent, w.region, 0, NULL);
}

TEST(agents) {
    kvmem_agent *agent = NULL;
    INVALID_NULLS(agent, kvmem_agent_create, NULL, NULL, &agent);
    INVALID(kvmem_agent_create, "agent", NULL, NULL);
    CHECK(kvmem_agent_name(NULL) == NULL);
    const kvmem_parameter parameter = {"key", "value"};
    INVALID(kvmem_agent_create_backend, NULL, "UCX", &parameter, 1);
    INVALID(kvmem_agent_create_backend, w.agent, NULL, &parameter, 1);
    INVALID(kvmem_agent_create_backend, w.agent, "MOCK", NULL, 1);
    kvmem_agent_destroy(NULL);
}

TEST(metadata) {
    kvmem_blob *blob = NULL;
    INVALID_NULLS(blob, kvmem_agent_get_local_metadata, NULL, &blob);
    INVALID(kvmem_agent_get_local_metadata, w.agent, NULL);
    INVALID_NULLS(blob, kvmem_agent_load_remote_metadata, NULL, "x", 1, &blob);
    INVALID_NULLS(blob, kvmem_agent_load_remote_metadata, w.agent, NULL, 1, &blob);
    INVALID(kvmem_agent_check_remote_metadata, NULL, "far");
    INVALID(kvmem_agent_check_remote_metadata, w.agent, NULL);
    INVALID(kvmem_agent_invalidate_remote_metadata, NULL, "far", NULL);
    INVALID(kvmem_agent_fetch_remote_metadata, NULL, "far", "127.0.0.1", 1, 0);
    INVALID(kvmem_agent_fetch_remote_metadata, w.agent, NULL, "127.0.0.1", 1, 0);
    INVALID(kvmem_agent_fetch_remote_metadata, w.agent, "far", NULL, 1, 0);
    INVALID(kvmem_agent_send_local_metadata, NULL, "127.0.0.1", 1);
    INVALID(kvmem_agent_send_local_metadata, w.agent, NULL, 1);
}

TEST(notifications) {
    INVALID(kvmem_agent_notify, NULL, "far", "x", 1);
    INVALID(kvmem_agent_notify, w.agent, NULL, "x", 1);
    INVALID(kvmem_agent_notify, w.agent, "far", NULL, 1);
    kvmem_notifications *taken = NULL;
    INVALID_NULLS(taken, kvmem_agent_take_notifications, NULL, 0, &taken);
    INVALID(kvmem_agent_take_notifications, w.agent, 0, NULL);
    CHECK_EQ(w.notifications->count, 1);
    CHECK(w.notifications->items != NULL);
    kvmem_notifications_destroy(NULL);
}

TEST(registrations) {
    kvmem_registration *registration = NULL;
    INVALID_NULLS(registration, kvmem_region_register, NULL, w.agent, &registration);
    INVALID_NULLS(registration, kvmem_region_register, w.region, NULL, &registration);
    INVALID(kvmem_region_register, w.region, w.agent, NULL);
    kvmem_registration_destroy(NULL);
}

TEST(layouts) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    kvmem_layout_requirements needs;
    INVALID_KEEPS(needs, kvmem_layout_get_requirements, NULL, &needs);
    INVALID(kvmem_layout_get_requirements, &config, NULL);
    kvmem_layout_options options = OPTIONS(kvmem_layout_options, it.source = KVMEM_LAYOUT_REGIONS,
                                           it.count = 1);
    kvmem_layout *layout = NULL;
    INVALID_NULLS(layout, kvmem_layout_build, NULL, &layout);
    INVALID_NULLS(layout, kvmem_layout_build, &options, &layout); /* no configuration */
    options.config = &config;
    INVALID_NULLS(layout, kvmem_layout_build, &options, &layout); /* no regions */
    options.source = KVMEM_LAYOUT_REGISTRATIONS;
    INVALID_NULLS(layout, kvmem_layout_build, &options, &layout); /* no registrations */
    kvmem_registration *missing = NULL;
    options.registrations = &missing;
    options.agent = w.agent;
    INVALID_NULLS(layout, kvmem_layout_build, &options, &layout);
    options.registrations = &w.registration;
    INVALID(kvmem_layout_build, &options, NULL);
    kvmem_layout_destroy(NULL);
}

TEST(layout_infos) {
    const kvmem_layout_part part = {"part", w.local.layout}, unnamed = {NULL, w.local.layout};
    const kvmem_layout_part nothing = {"part", NULL};
    kvmem_layout *layout = NULL;
    INVALID_NULLS(layout, kvmem_layout_combine, NULL, 1, &layout);
    INVALID_NULLS(layout, kvmem_layout_combine, NULL, 0, &layout);
    INVALID_NULLS(layout, kvmem_layout_combine, &unnamed, 1, &layout);
    INVALID_NULLS(layout, kvmem_layout_combine, &nothing, 1, &layout);
    INVALID(kvmem_layout_combine, &part, 1, NULL);
    INVALID_NULLS(layout, kvmem_layout_get_part, NULL, "part", &layout);
    INVALID_NULLS(layout, kvmem_layout_get_part, w.local.layout, NULL, &layout);
    INVALID(kvmem_layout_get_part, w.local.layout, "part", NULL);
    kvmem_layout_info info;
    INVALID_KEEPS(info, kvmem_layout_get_info, NULL, &info);
    INVALID(kvmem_layout_get_info, w.local.layout, NULL);
    kvmem_region *region = NULL;
    INVALID_NULLS(region, kvmem_layout_get_region, NULL, 0, &region);
    INVALID(kvmem_layout_get_region, w.local.layout, 0, NULL);
    const uint32_t first = 0;
    INVALID(kvmem_layout_create_epochs, NULL, NULL);
    kvmem_block_access access;
    size_t accesses = 0;
    INVALID_KEEPS(accesses, kvmem_layout_get_accesses, NULL, &first, 1, &access, 1, &accesses);
    INVALID_KEEPS(accesses, kvmem_layout_get_accesses, w.local.layout, NULL, 1, &access, 1, &accesses);
    INVALID_KEEPS(accesses, kvmem_layout_get_accesses, w.local.layout, &first, 1, NULL, 1, &accesses);
    INVALID_KEEPS(access, kvmem_layout_get_accesses, w.local.layout, &first, 1, &access, 1, NULL);
    kvmem_lease *lease = NULL;
    INVALID_NULLS(lease, kvmem_lease_create, NULL, &first, 1, NULL, &lease);
    INVALID_NULLS(lease, kvmem_lease_create, w.local.layout, NULL, 1, NULL, &lease);
    INVALID_NULLS(lease, kvmem_lease_create, w.local.layout, NULL, 0, NULL, &lease);
    INVALID(kvmem_lease_create, w.local.layout, &first, 1, NULL, NULL);
    kvmem_lease_destroy(NULL);
}

TEST(shares) {
    kvmem_blob *blob = NULL;
    INVALID_NULLS(blob, kvmem_layout_export, NULL, &blob);
    INVALID(kvmem_layout_export, w.near.layout, NULL);
    INVALID(kvmem_layout_serve, NULL, NULL);
    const void *data = kvmem_blob_data(w.blob);
    const size_t size = kvmem_blob_size(w.blob);
    kvmem_layout *layout = NULL;
    INVALID_NULLS(layout, kvmem_layout_import, NULL, data, size, &layout);
    INVALID_NULLS(layout, kvmem_layout_import, w.far, NULL, size, &layout);
    INVALID(kvmem_layout_import, w.far, data, size, NULL);
}

TEST(queues) {
    INVALID(kvmem_queue_create, NULL);
    kvmem_completion completion;
    size_t count = 0;
    INVALID_KEEPS(count, kvmem_queue_wait, NULL, 0, &completion, 1, &count);
    INVALID_KEEPS(count, kvmem_queue_wait, w.queue, 0, NULL, 1, &count);
    INVALID(kvmem_queue_wait, w.queue, 0, &completion, 1, NULL);
    kvmem_queue_destroy(NULL);
}

TEST(transfers) {
    const kv_job job = world_job();
    const kvmem_transfer_options *options = &job.transfer;
    const kvmem_layout *layout = w.local.layout;
    kvmem_transfer *transfer = NULL;
    INVALID_NULLS(transfer, kvmem_transfer_create, NULL, layout, options, &transfer);
    INVALID_NULLS(transfer, kvmem_transfer_create, layout, NULL, options, &transfer);
    INVALID(kvmem_transfer_create, layout, layout, options, NULL);
    EXPECT_OK(kvmem_transfer_create(layout, layout, NULL, &transfer, ERR)); /* whole blocks, by any method */
    DESTROYED(kvmem_transfer, transfer);
    INVALID_NULLS(transfer, kvmem_transfer_start, NULL, layout, options, &job.run, &transfer);
    INVALID_NULLS(transfer, kvmem_transfer_start, layout, layout, options, NULL, &transfer);
    INVALID(kvmem_transfer_start, layout, layout, options, &job.run, NULL);
    kvmem_submit_options step = OPTIONS(kvmem_submit_options);
    INVALID_NULLS(transfer, kvmem_transfer_start, layout, layout, options, &step, &transfer); /* no pairs */
    INVALID(kvmem_transfer_prepare, NULL, &job.run);
    INVALID(kvmem_transfer_prepare, w.copy, NULL);
    INVALID(kvmem_transfer_prepare, w.copy, &step);
    INVALID(kvmem_transfer_submit, NULL, NULL);
    INVALID(kvmem_transfer_submit, NULL, &job.run);
    INVALID(kvmem_transfer_submit, w.copy, &step);
    INVALID(kvmem_transfer_submit_on_stream, NULL, NULL, NULL);
    INVALID(kvmem_transfer_submit_on_stream, NULL, &job.run, NULL);
    step = WITH(job.run, it.pairs = NULL);
    INVALID(kvmem_transfer_submit, w.copy, &step);
    step = WITH(job.run, it.notification_size = 1); /* NULL with a size */
    INVALID(kvmem_transfer_submit, w.transfer, &step);
    INVALID(kvmem_transfer_wait_on_stream, NULL, 0, NULL);
    kvmem_blob *text = NULL;
    INVALID_NULLS(text, kvmem_transfer_explain, NULL, &text);
    INVALID(kvmem_transfer_explain, w.copy, NULL);
    kvmem_compared_method methods[2];
    size_t compared = 0;
    INVALID_KEEPS(methods, kvmem_transfer_get_methods, NULL, methods, 2, &compared);
    INVALID_KEEPS(compared, kvmem_transfer_get_methods, w.copy, NULL, 2, &compared);
    INVALID(kvmem_transfer_get_methods, w.copy, methods, 2, NULL);
    EXPECT_OK(kvmem_transfer_get_methods(w.copy, NULL, 0, &compared, ERR));
    CHECK(compared > 0);
    kvmem_transfer_destroy(NULL);
}

/* After all that, everything still works. */
TEST(all_objects_still_work) {
    RUN(w.copy);
    RUN(w.transfer);
    EXPECT_OK(kvmem_agent_check_remote_metadata(w.agent, "far", ERR));
    EXPECT_OK(kvmem_region_sync(w.file, ERR));
    world_close(&w);
}
