// SPDX-License-Identifier: Apache-2.0
// A machine with neither NIXL nor CUDA: what needs them says so, the rest works, and the process lives.
// Run with KVMEM_NIXL_LIBRARY unset and nothing for the loader to find.
#include "harness.h"

TEST(loading_nixl_is_unavailable) {
    CHECK(getenv("KVMEM_NIXL_LIBRARY") == NULL);
    EXPECT_MESSAGE(KVMEM_STATUS_UNAVAILABLE_NIXL, "KVMEM_NIXL_LIBRARY", kvmem_nixl_load(NULL, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_UNAVAILABLE_NIXL, "libnixl_capi.so", kvmem_nixl_load(NULL, ERR)); /* again */
    size_t size = 77;
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_nixl_get_path(NULL, 0, &size, ERR));
    CHECK_EQ(size, 77);
}

TEST(agents_are_unavailable) {
    kvmem_agent *agent = (kvmem_agent *)&agent;
    EXPECT(KVMEM_STATUS_UNAVAILABLE_NIXL, kvmem_agent_create("nobody", NULL, &agent, ERR));
    CHECK(agent == NULL);
    kvmem_agent_options options;
    kvmem_agent_options_init(&options, sizeof(options));
    options.flags = KVMEM_AGENT_LISTEN_THREAD;
    EXPECT(KVMEM_STATUS_UNAVAILABLE_NIXL, kvmem_agent_create("nobody", &options, &agent, ERR));
}

/* What takes an agent cannot be given one; without it, it answers and lives. */
TEST(what_needs_an_agent_says_so) {
    const kvmem_status invalid = KVMEM_STATUS_INVALID_ARGUMENT;
    kvmem_blob *blob = NULL;
    kvmem_notifications *notifications = NULL;
    kvmem_layout *layout = NULL;
    kvmem_registration *registration = NULL;
    EXPECT(invalid, kvmem_agent_create_backend(NULL, "UCX", NULL, 0, ERR));
    EXPECT(invalid, kvmem_agent_get_local_metadata(NULL, &blob, ERR));
    EXPECT(invalid, kvmem_agent_load_remote_metadata(NULL, "x", 1, NULL, ERR));
    EXPECT(invalid, kvmem_agent_check_remote_metadata(NULL, "x", ERR));
    EXPECT(invalid, kvmem_agent_invalidate_remote_metadata(NULL, "x", ERR));
    EXPECT(invalid, kvmem_agent_fetch_remote_metadata(NULL, "x", "127.0.0.1", 1, 0, ERR));
    EXPECT(invalid, kvmem_agent_send_local_metadata(NULL, "127.0.0.1", 1, ERR));
    EXPECT(invalid, kvmem_agent_notify(NULL, "x", "x", 1, ERR));
    EXPECT(invalid, kvmem_agent_take_notifications(NULL, 0, &notifications, ERR));
    EXPECT(invalid, kvmem_layout_import(NULL, "x", 1, &layout, ERR));
    EXPECT(invalid, kvmem_region_register(NULL, NULL, &registration, ERR));
    CHECK(kvmem_agent_name(NULL) == NULL);
    kvmem_agent_destroy(NULL);
}

/* What every CUDA call answers: on a machine with a GPU the driver is there, and the answer is another. */
static kvmem_status cuda_answer(void) {
    return access("/dev/nvidiactl", F_OK) == 0 ? KVMEM_STATUS_OK : KVMEM_STATUS_UNAVAILABLE_CUDA;
}

TEST(cuda_is_unavailable) {
    kvmem_cuda_info info = {77, 77};
    kvmem_cuda_device_info device_info;
    bool can_access = false;
    for (int call = 0; call < 2; call++) {
        EXPECT(cuda_answer(), kvmem_cuda_get_info(&info, ERR));
        EXPECT(cuda_answer(), kvmem_cuda_get_device_info(0, &device_info, ERR));
        EXPECT(cuda_answer(), kvmem_cuda_can_access(0, 0, &can_access, ERR));
    }
    if (cuda_answer() == KVMEM_STATUS_UNAVAILABLE_CUDA) {
        CHECK_EQ(info.driver_version, 77);
        CHECK_EQ(info.device_count, 77);
    }
}

TEST(gpu_memory_is_unavailable) {
    kvmem_pinned_options pinned;
    kvmem_pinned_options_init(&pinned, sizeof(pinned));
    pinned.size = 4096;
    kvmem_region *region = NULL;
    EXPECT(cuda_answer(), kvmem_region_create_pinned(&pinned, &region, ERR));
    kvmem_region_destroy(region);
    kvmem_device_options device;
    kvmem_device_options_init(&device, sizeof(device));
    device.size = 4096;
    EXPECT(cuda_answer(), kvmem_region_create_device(&device, &region, ERR));
    kvmem_region_destroy(region);
    kvmem_elastic_options elastic;
    kvmem_elastic_options_init(&elastic, sizeof(elastic));
    elastic.size = 64 * MIB;
    EXPECT(cuda_answer(), kvmem_region_create_elastic(&elastic, &region, ERR));
    kvmem_region_destroy(region);
}

TEST(virtual_memory_is_unavailable) {
    kvmem_vmm_options options;
    kvmem_vmm_options_init(&options, sizeof(options));
    options.size = 2 * MIB;
    uint64_t granularity = 0;
    kvmem_vmm_range *range = NULL;
    kvmem_vmm_memory *memory = NULL;
    EXPECT(cuda_answer(), kvmem_vmm_get_granularity(&options, KVMEM_GRANULARITY_MINIMUM, &granularity, ERR));
    EXPECT(cuda_answer(), kvmem_vmm_range_create(2 * MIB, 0, &range, ERR));
    EXPECT(cuda_answer(), kvmem_vmm_memory_create(&options, &memory, ERR));
    kvmem_vmm_memory_destroy(memory);
    kvmem_vmm_range_destroy(range);
}

/* Without a driver nothing is memory of a GPU; with one, this memory is not. */
TEST(host_memory_is_not_taken_for_a_gpus) {
    static unsigned char memory[4096];
    kvmem_adopt_options options;
    kvmem_adopt_options_init(&options, sizeof(options));
    options.address = memory;
    options.size = sizeof(memory);
    kvmem_region *region = (kvmem_region *)memory;
    const kvmem_status status = kvmem_region_adopt_device(&options, 0, &region, ERR);
    const bool has_gpu = cuda_answer() == KVMEM_STATUS_OK;
    CHECK_EQ(status, has_gpu ? KVMEM_STATUS_INVALID_ARGUMENT : KVMEM_STATUS_UNAVAILABLE_CUDA);
    CHECK(region == NULL);
}

TEST(local_transfers_work) {
    static const kvmem_block_pair pairs[] = {{6, 0}, {0, 6}};
    const kv_move move = {pairs, NUM(pairs), 0, 0, 3};
    const kvmem_layout_config from = kv_config(&kv_kinds[0]);
    const kvmem_layout_config to = kv_config(&kv_kinds[2]);
    kv_side source;
    kv_side destination;
    kv_side_open(&source, &from, NULL, 1);
    kv_side_open(&destination, &to, NULL, 2);
    kv_run(source.layout, destination.layout, &move);
    kv_expect_moved(&destination, &source, &move);
    kv_side_check(&destination);
    kv_side_close(&source);
    kv_side_close(&destination);
}

TEST(local_regions_work) {
    kvmem_system_options system;
    kvmem_system_options_init(&system, sizeof(system));
    system.size = MIB;
    kvmem_disk_options disk;
    kvmem_disk_options_init(&disk, sizeof(disk));
    disk.size = MIB;
    kvmem_region *memory = NULL;
    kvmem_region *file = NULL;
    EXPECT_OK(kvmem_region_create_system(&system, &memory, ERR));
    EXPECT_OK(kvmem_region_create_disk(&disk, &file, ERR));
    kvmem_region_destroy(memory);
    kvmem_region_destroy(file);
}

/* Only what asks for NIXL by name needs it. */
TEST(disk_transfers_work) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    kvmem_layout *file = temporary_disk_layout(&config, NULL, KVMEM_DISK_BUFFERED);
    kv_side memory;
    kv_side_open(&memory, &config, NULL, 1);
    static const kvmem_block_pair there[] = {{0, 3}};
    static const kvmem_block_pair back[] = {{3, 1}};
    const kv_move out = {there, 1, 0, 0, 3};
    const kv_move in = {back, 1, 0, 0, 3};
    const kv_move both = {(kvmem_block_pair[]){{0, 1}}, 1, 0, 0, 3};
    kv_run(memory.layout, file, &out);
    kv_run(file, memory.layout, &in);
    kv_expect_moved(&memory, &memory, &both);
    kv_side_check(&memory);
    kvmem_transfer_options options = kv_transfer_options(&out);
    options.path = KVMEM_PATH_NIXL_FILE_WRITE;
    kvmem_transfer *transfer = (kvmem_transfer *)&transfer;
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "agent",
                   kvmem_transfer_create(memory.layout, file, &options, &transfer, ERR));
    CHECK(transfer == NULL);
    kvmem_layout_destroy(file);
    kv_side_close(&memory);
}
