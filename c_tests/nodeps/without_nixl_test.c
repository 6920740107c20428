// SPDX-License-Identifier: Apache-2.0
// A machine with neither NIXL nor CUDA: functions that need them fail, the others work, and the process
// survives. Run with KVMEM_NIXL_LIBRARY unset, and no library that the loader could find.
#include "harness.h"

TEST(loading_nixl_is_unavailable) {
    CHECK(getenv("KVMEM_NIXL_LIBRARY") == NULL);
    EXPECT_MESSAGE(KVMEM_STATUS_UNAVAILABLE_NIXL, "KVMEM_NIXL_LIBRARY", kvmem_nixl_load(NULL, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_UNAVAILABLE_NIXL, "libnixl_capi.so", kvmem_nixl_load(NULL, ERR)); /* again */
    REFUSE(KVMEM_STATUS_INVALID_STATE, "", kvmem_nixl_get_path);
}

TEST(agents_are_unavailable) {
    REFUSE(KVMEM_STATUS_UNAVAILABLE_NIXL, "", kvmem_agent_create, "unavailable", NULL);
    kvmem_agent_options options = OPTIONS(kvmem_agent_options, it.flags = KVMEM_AGENT_LISTEN_THREAD);
    REFUSE(KVMEM_STATUS_UNAVAILABLE_NIXL, "", kvmem_agent_create, "unavailable", &options);
}

/* No agent can be created, so functions with an agent fail with NULL. */
TEST(functions_that_need_an_agent_fail) {
    const kvmem_status invalid = KVMEM_STATUS_INVALID_ARGUMENT;
    EXPECT(invalid, kvmem_agent_create_backend(NULL, "UCX", NULL, 0, ERR));
    REFUSE(invalid, "", kvmem_agent_get_local_metadata, NULL);
    EXPECT(invalid, kvmem_agent_load_remote_metadata(NULL, "x", 1, NULL, ERR));
    EXPECT(invalid, kvmem_agent_check_remote_metadata(NULL, "x", ERR));
    EXPECT(invalid, kvmem_agent_invalidate_remote_metadata(NULL, "x", NULL, ERR));
    EXPECT(invalid, kvmem_agent_fetch_remote_metadata(NULL, "x", "127.0.0.1", 1, 0, ERR));
    EXPECT(invalid, kvmem_agent_send_local_metadata(NULL, "127.0.0.1", 1, ERR));
    EXPECT(invalid, kvmem_agent_notify(NULL, "x", "x", 1, ERR));
    EXPECT(invalid, kvmem_agent_connect(NULL, "x", NULL, KVMEM_TIMEOUT_FOREVER, ERR));
    REFUSE(invalid, "", kvmem_agent_get_plugins, NULL);
    const kvmem_nixl_descriptor one = memory_at("x", 1);
    REFUSE(invalid, "", kvmem_segments_register, NULL, &one, 1, NULL);
    REFUSE(invalid, "", kvmem_request_create, NULL, 1, &one, "x", &one, 1, NULL);
    REFUSE(invalid, "", kvmem_agent_take_notifications, NULL, 0);
    REFUSE(invalid, "", kvmem_layout_import, NULL, "x", 1);
    REFUSE(invalid, "", kvmem_region_register, NULL, NULL);
    CHECK(kvmem_agent_name(NULL) == NULL);
    kvmem_agent_destroy(NULL);
}

/* The status of every CUDA call. On a machine with a GPU there is a driver, and the status differs. */
static kvmem_status cuda_status(void) {
    return access("/dev/nvidiactl", F_OK) == 0 ? KVMEM_STATUS_OK : KVMEM_STATUS_UNAVAILABLE_CUDA;
}

TEST(cuda_is_unavailable) {
    kvmem_cuda_info info = {77, 77};
    kvmem_cuda_device_info device_info;
    for (int call = 0; call < 2; call++) {
        EXPECT(cuda_status(), kvmem_cuda_get_info(&info, ERR));
        EXPECT(cuda_status(), kvmem_cuda_get_device_info(0, &device_info, ERR));
    }
    if (cuda_status() == KVMEM_STATUS_UNAVAILABLE_CUDA) {
        CHECK_EQ(info.driver_version, 77);
        CHECK_EQ(info.device_count, 77);
    }
}

TEST(gpu_memory_is_unavailable) {
    kvmem_pinned_options pinned = OPTIONS(kvmem_pinned_options, it.size = 4096);
    OWNED(kvmem_region) region = NULL;
    EXPECT(cuda_status(), kvmem_region_create_pinned(&pinned, &region, ERR));
    if (region == NULL) CHECK_HAS(test_last_message(), "allocate memory of the tier system");
    kvmem_region_destroy(region);
    kvmem_device_options device = OPTIONS(kvmem_device_options, it.size = 4096);
    EXPECT(cuda_status(), kvmem_region_create_device(&device, &region, ERR));
    kvmem_region_destroy(region);
    kvmem_elastic_options elastic = OPTIONS(kvmem_elastic_options, it.size = 64 * MIB);
    EXPECT(cuda_status(), kvmem_region_create_elastic(&elastic, &region, ERR));
}

TEST(virtual_memory_is_unavailable) {
    kvmem_vmm_options options = OPTIONS(kvmem_vmm_options, it.size = 2 * MIB);
    uint64_t granularity = 0;
    OWNED(kvmem_vmm_range) range = NULL;
    OWNED(kvmem_vmm_memory) memory = NULL;
    EXPECT(cuda_status(), kvmem_vmm_get_granularity(&options, KVMEM_GRANULARITY_MINIMUM, &granularity, ERR));
    EXPECT(cuda_status(), kvmem_vmm_range_create(2 * MIB, 0, NULL, &range, ERR));
    EXPECT(cuda_status(), kvmem_vmm_memory_create(&options, &memory, ERR));
}

/* Without a driver no memory is GPU memory; with a driver, this memory is not. */
TEST(host_memory_is_not_gpu_memory) {
    static unsigned char memory[4096];
    kvmem_adopt_options options = OPTIONS(kvmem_adopt_options, it.address = memory, it.size = sizeof(memory));
    kvmem_region *region = (kvmem_region *)memory;
    const kvmem_status status = kvmem_region_adopt_device(&options, 0, &region, ERR);
    const bool has_gpu = cuda_status() == KVMEM_STATUS_OK;
    CHECK_EQ(status, has_gpu ? KVMEM_STATUS_INVALID_ARGUMENT : KVMEM_STATUS_UNAVAILABLE_CUDA);
    CHECK(region == NULL);
}

TEST(local_transfers_work) {
    const kv_move move = KV_MOVE(3, {6, 0}, {0, 6});
    KV_SIDES(source, destination, kv_config(&kv_kinds[0]), kv_config(&kv_kinds[2]));
    kv_run(source.layout, destination.layout, &move);
    kv_side_check_moved(&destination, &source, &move);
}

TEST(local_regions_work) {
    kvmem_system_options system = OPTIONS(kvmem_system_options, it.size = MIB);
    kvmem_disk_options disk = OPTIONS(kvmem_disk_options, it.size = MIB);
    OWN(kvmem_region, memory, kvmem_region_create_system, &system);
    OWN(kvmem_region, file, kvmem_region_create_disk, &disk);
}

/* Only a method by NIXL needs NIXL. */
TEST(disk_transfers_work) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OWNED(kvmem_layout) file = temporary_disk_layout(&config, NULL, KVMEM_DISK_BUFFERED);
    OPENED(kv_side, memory, &config, NULL, 1);
    static const kvmem_block_pair there[] = {{0, 3}};
    static const kvmem_block_pair back[] = {{3, 1}};
    const kv_move out = {there, 1, 0, 0, 3};
    const kv_move in = {back, 1, 0, 0, 3};
    const kv_move both = {(kvmem_block_pair[]){{0, 1}}, 1, 0, 0, 3};
    kv_run(memory.layout, file, &out);
    kv_run(file, memory.layout, &in);
    kv_side_check_moved(&memory, &memory, &both);
    kv_job options = WITH(kv_job_of(&out), it.transfer.method = KVMEM_METHOD_NIXL);
    REFUSE(KVMEM_STATUS_INVALID_STATE, "agent", kv_prepare, memory.layout, file, &options);
}
