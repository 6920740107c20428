// SPDX-License-Identifier: Apache-2.0
// Raw descriptors: arrays of them, registration with selected backends, queries, memory views.
#include "harness.h"

static kvmem_nixl_options on_backend(const char *const *name) {
    return OPTIONS(kvmem_nixl_options, it.backends = name, it.backend_count = 1);
}

static const char *const posix[] = {"POSIX"};
static const char *const ucx[] = {"UCX"};

TEST(a_region_lists_its_descriptors) {
    OWN(kvmem_region, region, kvmem_region_create_disk, REF(OPTIONS(kvmem_disk_options, it.size = 4096)));
    size_t count = 0;
    EXPECT_OK(kvmem_region_get_descriptors(region, NULL, 0, &count, ERR));
    CHECK_EQ(count, 1);
    const kvmem_nixl_descriptor file = region_descriptor(region);
    CHECK_EQ(file.memory_type, KVMEM_MEMORY_FILE);
    CHECK_EQ(file.address, 0);
    CHECK_EQ(file.size, 4096);
    CHECK(file.region == region && file.metadata == NULL && file.agent == NULL);

    const kvmem_block_options options =
        OPTIONS(kvmem_block_options, it.device_id = 7, it.offset = 512, it.size = 1024,
                it.metadata = "N:a\0b",
                it.metadata_size = 5);
    OWN(kvmem_region, device, kvmem_region_create_block, &options);
    OWN(kvmem_region, view, kvmem_region_create_view, device, 512, 512);
    const kvmem_nixl_descriptor whole = region_descriptor(view);
    DESTROYED(kvmem_region, device);
    CHECK_EQ(whole.memory_type, KVMEM_MEMORY_BLOCK);
    CHECK_EQ(whole.address, 512);
    CHECK_EQ(whole.size, 1024);
    CHECK_EQ(whole.device_id, 7);
    CHECK_EQ(whole.metadata_size, 5);
    CHECK_BYTES(whole.metadata, "N:a\0b", 5);
}

TEST(a_descriptor_that_is_wrong_is_named) {
    OWN(kvmem_agent, agent, kvmem_agent_create, "wrong", NULL);
    const kvmem_nixl_descriptor right = memory_at(&agent, 1);
    const struct {
        kvmem_nixl_descriptor second;
        kvmem_status status;
        const char *part;
    } cases[] = {
        {WITH(right, it.address = UINT64_MAX, it.size = 2), KVMEM_STATUS_OUT_OF_RANGE,
         "descriptors: descriptor 1 of 2 bytes at 0xffffffffffffffff exceeds the address space"},
        {WITH(right, it.memory_type = KVMEM_MEMORY_FILE), KVMEM_STATUS_INVALID_ARGUMENT,
         "memory_type of descriptors[1] is 3, and that of descriptors[0] is 1 (DRAM)"},
        {WITH(right, it.reserved = 1), KVMEM_STATUS_INVALID_ARGUMENT, "descriptors[1]: reserved is 1"},
        {WITH(right, it.metadata_size = 1), KVMEM_STATUS_INVALID_ARGUMENT,
         "descriptors[1]: metadata is NULL"},
        {WITH(right, it.region = (const kvmem_region *)agent), KVMEM_STATUS_INVALID_ARGUMENT,
         "descriptors[1]: the handle is of type agent"},
    };
    for (size_t i = 0; i < NUM(cases); i++) {
        const kvmem_nixl_descriptor both[] = {right, cases[i].second};
        REFUSE(cases[i].status, cases[i].part, kvmem_segments_register, agent, ARRAY(both), NULL);
    }
    const kvmem_nixl_descriptor untyped = WITH(right, it.memory_type = 6);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "descriptors[0]: memory_type", kvmem_segments_register, agent,
           &untyped, 1,
           NULL);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "remote[0]: memory_type", kvmem_request_create, agent,
           KVMEM_REQUEST_READ,
           &right, "wrong", &untyped, 1, NULL);
}

/* 4,096 bytes are registered at 0 and at 8,192. Of a long list the first other descriptor is named. */
static void check_unknown_is_named(kvmem_agent *near, kvmem_agent *far, unsigned char *memory) {
    enum { COUNT = 1000 };
    static const size_t at[] = {0, 1, 614, COUNT - 1};
    for (size_t i = 0; i < NUM(at); i++) {
        static kvmem_nixl_descriptor list[COUNT];
        for (size_t j = 0; j < COUNT; j++)
            list[j] = memory_at(memory + (j < at[i] ? j % 2 * 8192 + j : 6000 + j), 16);
        const char *named = TEXT("descriptor %zu of 1000, DRAM memory at %p of 16 bytes on device 0", at[i],
                                 (void *)(memory + 6000 + at[i]));
        REFUSE(KVMEM_STATUS_NOT_FOUND, named, kvmem_prepared_create, near, "far", ARRAY(list), NULL);
        CHECK_HAS(test_last_message(), "is the first that the loaded metadata does not cover");
        REFUSE(KVMEM_STATUS_NOT_FOUND, named, kvmem_prepared_create, far, NULL, ARRAY(list), NULL);
        CHECK_HAS(test_last_message(), "is the first that is not registered");
        REFUSE(KVMEM_STATUS_NOT_FOUND, named, kvmem_request_create, far, KVMEM_REQUEST_READ, list, "far",
               list,
               COUNT, NULL);
    }
}

TEST(memory_without_a_region_is_registered_and_accessed) {
    static unsigned char memory[65536];
    OWNED(kvmem_agent) near = agent_open("near");
    OWNED(kvmem_agent) far = agent_open("far");
    const kvmem_nixl_descriptor list[] = {memory_at(memory, 4096), memory_at(memory + 8192, 4096)};
    GET(kvmem_segments *, segments, kvmem_segments_register, far, ARRAY(list), NULL);
    REFUSE(KVMEM_STATUS_ALREADY_EXISTS, "already registered", kvmem_segments_register, far, ARRAY(list),
           NULL);
    agents_introduce(near, far);
    OWN(kvmem_prepared, prepared, kvmem_prepared_create, near, "far", ARRAY(list), NULL);
    const kvmem_nixl_descriptor other = memory_at(memory + 4096, 4096);
    REFUSE(KVMEM_STATUS_NOT_FOUND, "metadata must cover", kvmem_prepared_create, near, "far", &other, 1,
           NULL);
    check_unknown_is_named(near, far, memory);
    EXPECT_OK(kvmem_segments_deregister(segments, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "already", kvmem_segments_deregister(segments, ERR));
    kvmem_segments_destroy(segments);
    OWN(kvmem_segments, again, kvmem_segments_register, far, ARRAY(list), NULL); /* and once more */
}

TEST(backends_are_chosen) {
    static unsigned char memory[4096];
    OWNED(kvmem_agent) agent = agent_open("choosing");
    EXPECT_OK(kvmem_agent_create_backend(agent, "POSIX", NULL, 0, ERR));
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "no descriptor", kvmem_segments_register, agent, NULL, 0, NULL);
    const kvmem_nixl_descriptor all = memory_at(memory, sizeof(memory));
    const kvmem_nixl_options only_posix = on_backend(posix);
    GET(kvmem_segments *, segments, kvmem_segments_register, agent, &all, 1, &only_posix);
    /* UCX has not registered it, so no peer can access it. */
    OWNED(kvmem_agent) peer = agent_open("peer");
    agents_introduce(peer, agent);
    REFUSE(KVMEM_STATUS_NOT_FOUND, "must cover", kvmem_prepared_create, peer, "choosing", &all, 1, NULL);
    kvmem_segments_destroy(segments);
    const kvmem_nixl_options only_ucx = on_backend(ucx);
    OWN(kvmem_segments, reachable, kvmem_segments_register, agent, &all, 1, &only_ucx);
    OWN(kvmem_blob, metadata, kvmem_agent_get_partial_metadata, agent, &all, 1, &only_ucx);
    EXPECT_OK(kvmem_agent_load_remote_metadata(peer, kvmem_blob_data(metadata), kvmem_blob_size(metadata),
                                               NULL,
                                               ERR));
    OWN(kvmem_prepared, prepared, kvmem_prepared_create, peer, "choosing", &all, 1, NULL);
    const char *const missing[] = {"OBJ"};
    const kvmem_nixl_options on_missing = on_backend(missing);
    const kvmem_nixl_descriptor object = {.size = 4096, .memory_type = KVMEM_MEMORY_OBJECT};
    REFUSE(KVMEM_STATUS_NOT_FOUND, "has no OBJ backend", kvmem_segments_register, agent, &object,
           1, &on_missing);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "accepts no OBJECT memory", kvmem_segments_register, agent, &object,
           1, &only_ucx);
    REFUSE(KVMEM_STATUS_NIXL, "create a backend that accepts OBJECT memory", kvmem_segments_register, agent,
           &object, 1, NULL);
}

/* NIXL returns the same status for all causes; the error names what UCX needs, and its settings. */
TEST(gpu_memory_without_a_gpu_fails_with_advice) {
    if (access("/dev/nvidiactl", F_OK) == 0) SKIP("a machine without a GPU");
    static unsigned char memory[4096];
    OWNED(kvmem_agent) agent = agent_open("no_gpu");
    const kvmem_nixl_descriptor all = WITH(memory_at(memory, sizeof(memory)),
                                           it.memory_type = KVMEM_MEMORY_VRAM);
    CHECK_EQ(setenv("UCX_TLS", "tcp", 1), 0);
    REFUSE(KVMEM_STATUS_NIXL, "with its UCX backend", kvmem_segments_register, agent, &all, 1, NULL);
    CHECK_EQ(unsetenv("UCX_TLS"), 0);
    CHECK_HAS(test_last_message(), "cuda_copy");
    CHECK_HAS(test_last_message(), "UCX_TLS=tcp");
}

TEST(files_are_queried_by_their_paths) {
    SCRATCH(directory);
    const char *path = TEXT("%s", scratch_file(&directory, "there"));
    write_file(path, "0123456789", 10);
    const char *missing = scratch_file(&directory, "missing");
    OWN(kvmem_agent, agent, kvmem_agent_create, "querying", NULL);
    EXPECT_OK(kvmem_agent_create_backend(agent, "POSIX", NULL, 0, ERR));
    const kvmem_nixl_descriptor untold = {.size = 10, .memory_type = KVMEM_MEMORY_FILE};
    const kvmem_nixl_descriptor files[] = {
        WITH(untold, it.metadata = path, it.metadata_size = strlen(path)),
        WITH(untold, it.metadata = missing, it.metadata_size = strlen(missing)),
        untold,
    };
    OWN(kvmem_query, query, kvmem_agent_query, agent, files, 2, NULL, KVMEM_TIMEOUT_FOREVER);
    CHECK_EQ(query->count, 2);
    const kvmem_query_result there = query->items[0];
    CHECK_EQ(there.exists, 1);
    bool has_size = false;
    for (size_t i = 0; i < there.parameter_count; i++)
        has_size |= strcmp(there.parameters[i].value, "10") == 0;
    CHECK(has_size);
    const kvmem_query_result absent = query->items[1];
    CHECK_EQ(absent.exists, 0);
    CHECK_EQ(absent.parameter_count, 0);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "descriptor 2 has no metadata", kvmem_agent_query, agent,
           ARRAY(files), NULL, KVMEM_TIMEOUT_FOREVER);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "no descriptor to query", kvmem_agent_query, agent, NULL, 0, NULL, KVMEM_TIMEOUT_FOREVER);
}

/* NIXL would register with it twice. */
TEST(a_backend_is_named_once) {
    static unsigned char memory[4096];
    OWNED(kvmem_agent) agent = agent_open("registering");
    const kvmem_nixl_descriptor all = memory_at(memory, sizeof(memory));
    const char *names[] = {"UCX", "UCX"};
    const kvmem_nixl_options options = OPTIONS(kvmem_nixl_options, it.backends = names, it.backend_count = 2);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "backends has 'UCX' twice", kvmem_segments_register, agent, &all, 1,
           &options);
}

TEST(one_backend_is_queried) {
    static unsigned char memory[4096];
    OWNED(kvmem_agent) agent = agent_open("querying");
    EXPECT_OK(kvmem_agent_create_backend(agent, "POSIX", NULL, 0, ERR));
    const kvmem_nixl_descriptor all = memory_at(memory, sizeof(memory));
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "POSIX and UCX accept DRAM memory", kvmem_agent_query, agent, &all,
           1,
           NULL, KVMEM_TIMEOUT_FOREVER);
}

/* UCX allocates GPU memory for each view: the error says so. */
TEST(a_view_without_a_gpu_fails_with_advice) {
    static unsigned char memory[4096];
    OWNED(kvmem_agent) agent = agent_open("viewing");
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "no descriptor", kvmem_memory_view_create, agent, NULL, 0, NULL, REF((void *){0}));
    const kvmem_nixl_descriptor all = memory_at(memory, sizeof(memory));
    OWN(kvmem_segments, segments, kvmem_segments_register, agent, &all, 1, NULL);
    REFUSE(KVMEM_STATUS_NIXL, "UCX needs a GPU, also for other memory", kvmem_memory_view_create, agent, &all,
           1, NULL, REF((void *){0}));
    const kvmem_nixl_descriptor of_far = WITH(all, it.agent = "far");
    REFUSE(KVMEM_STATUS_NOT_FOUND, "far", kvmem_memory_view_create, agent, &of_far, 1, NULL,
           REF((void *){0}));
}
