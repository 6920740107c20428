// SPDX-License-Identifier: Apache-2.0
// Raw descriptors: lists, registration with selected backends, queries, memory views.
#include "harness.h"

static kvmem_descriptors *list_open(uint32_t memory_type) {
    return MADE(kvmem_descriptors, kvmem_descriptors_create, memory_type);
}

static void add(kvmem_descriptors *list, const void *address, size_t size) {
    const kvmem_descriptor descriptor = {.address = (uintptr_t)address, .size = size};
    EXPECT_OK(kvmem_descriptors_add(list, &descriptor, 1, ERR));
}

static kvmem_nixl_options on_backend(const char *const *name) {
    return OPTIONS(kvmem_nixl_options, it.backends = name, it.backend_count = 1);
}

static const char *const posix[] = {"POSIX"};
static const char *const ucx[] = {"UCX"};

TEST(a_list_is_changed_and_read) {
    char key[] = "bucket/\0key";
    char agent[] = "far";
    OWNED(kvmem_descriptors) list = list_open(KVMEM_MEMORY_OBJECT);
    const kvmem_descriptor both[] = {
        {.address = 0, .size = 100, .device_id = 7, .metadata = key, .metadata_size = sizeof(key)},
        {.address = 4096, .size = 200, .agent = agent},
    };
    EXPECT_OK(kvmem_descriptors_add(list, both, NUM(both), ERR));
    memset(key, 'x', sizeof(key)); /* they were copied */
    memset(agent, 'x', sizeof(agent) - 1);
    CHECK_EQ(kvmem_descriptors_count(list), 2);
    CHECK_EQ(kvmem_descriptors_memory_type(list), KVMEM_MEMORY_OBJECT);
    GET(kvmem_descriptor, first, kvmem_descriptors_get, list, 0);
    CHECK_EQ(first.device_id, 7);
    CHECK_EQ(first.metadata_size, sizeof(key));
    CHECK_BYTES(first.metadata, "bucket/\0key", sizeof(key));
    CHECK(first.agent == NULL);
    GET(kvmem_descriptor, second, kvmem_descriptors_get, list, 1);
    CHECK_STR(second.agent, "far");
    CHECK(second.metadata == NULL);

    EXPECT_OK(kvmem_descriptors_set(list, 0, &(kvmem_descriptor){.address = 8, .size = 16}, ERR));
    EXPECT_OK(kvmem_descriptors_remove(list, 1, ERR));
    EXPECT_OK(kvmem_descriptors_resize(list, 3, ERR));
    GET(kvmem_descriptor, changed, kvmem_descriptors_get, list, 0);
    CHECK_EQ(changed.address, 8);
    GET(kvmem_descriptor, zero, kvmem_descriptors_get, list, 2);
    CHECK_EQ(zero.size, 0);
    OWN(kvmem_blob, text, kvmem_descriptors_print, list);
    CHECK_HAS(kvmem_blob_data(text), "3 descriptors of OBJECT memory\n0: address 0x8, 16 bytes, device 0\n");
    EXPECT_OK(kvmem_descriptors_resize(list, 1, ERR));
    EXPECT_OK(kvmem_descriptors_trim(list, ERR));
    CHECK_EQ(kvmem_descriptors_count(list), 1);
    EXPECT_OK(kvmem_descriptors_clear(list, ERR));
    CHECK_EQ(kvmem_descriptors_count(list), 0);
}

TEST(a_failed_change_changes_nothing) {
    OWNED(kvmem_descriptors) list = list_open(KVMEM_MEMORY_DRAM);
    const kvmem_descriptor added[] = {{.address = 1, .size = 1}, {.address = UINT64_MAX, .size = 2}};
    EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_RANGE, "exceeds the address space",
                   kvmem_descriptors_add(list, added, NUM(added), ERR));
    CHECK_EQ(kvmem_descriptors_count(list), 0);
    EXPECT(KVMEM_STATUS_OUT_OF_RANGE, kvmem_descriptors_remove(list, 0, ERR));
    EXPECT(KVMEM_STATUS_OUT_OF_RANGE, kvmem_descriptors_set(list, 0, added, ERR));
    EXPECT(KVMEM_STATUS_OUT_OF_RANGE, kvmem_descriptors_resize(list, SIZE_MAX, ERR));
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "memory_type", kvmem_descriptors_create, 6);
    OWN(kvmem_region, region, kvmem_region_create_disk, REF(OPTIONS(kvmem_disk_options, it.size = 4096)));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "the region is FILE memory, the list is of DRAM memory",
                   kvmem_descriptors_add_region(list, region, ERR));
}

TEST(a_list_is_restored_from_its_bytes) {
    OWNED(kvmem_descriptors) list = list_open(KVMEM_MEMORY_BLOCK);
    const kvmem_descriptor descriptor = {.address = 5, .size = 6, .device_id = 7, .metadata = "m",
                                         .metadata_size = 1};
    EXPECT_OK(kvmem_descriptors_add(list, &descriptor, 1, ERR));
    OWN(kvmem_blob, bytes, kvmem_descriptors_export, list);
    OWN(kvmem_descriptors, again, kvmem_descriptors_import, kvmem_blob_data(bytes), kvmem_blob_size(bytes));
    CHECK_EQ(kvmem_descriptors_memory_type(again), KVMEM_MEMORY_BLOCK);
    GET(kvmem_descriptor, read, kvmem_descriptors_get, again, 0);
    CHECK_EQ(read.device_id, 7);
    CHECK_BYTES(read.metadata, "m", 1);
    REFUSE(KVMEM_STATUS_CORRUPT, "", kvmem_descriptors_import, kvmem_blob_data(bytes),
           kvmem_blob_size(bytes) - 1);
}

/* 4,096 bytes are registered at 0 and at 8,192. Of a long list the first other descriptor is named. */
static void check_unknown_is_named(kvmem_agent *near, kvmem_agent *far, unsigned char *memory) {
    enum { COUNT = 1000 };
    static const size_t at[] = {0, 1, 614, COUNT - 1};
    for (size_t i = 0; i < NUM(at); i++) {
        OWNED(kvmem_descriptors) list = list_open(KVMEM_MEMORY_DRAM);
        for (size_t j = 0; j < COUNT; j++) add(list, memory + (j < at[i] ? j % 2 * 8192 + j : 6000 + j), 16);
        const char *named = TEXT("descriptor %zu of 1000, DRAM memory at %p of 16 bytes on device 0", at[i],
                                 (void *)(memory + 6000 + at[i]));
        REFUSE(KVMEM_STATUS_NOT_FOUND, named, kvmem_prepared_create, near, "far", list, NULL);
        CHECK_HAS(test_last_message(), "is the first that the loaded metadata does not cover");
        REFUSE(KVMEM_STATUS_NOT_FOUND, named, kvmem_prepared_create, far, NULL, list, NULL);
        CHECK_HAS(test_last_message(), "is the first that is not registered");
        REFUSE(KVMEM_STATUS_NOT_FOUND, named, kvmem_request_create, far, KVMEM_REQUEST_READ, list, "far", list,
               NULL);
    }
}

TEST(memory_without_a_region_is_registered_and_accessed) {
    static unsigned char memory[65536];
    OWNED(kvmem_agent) near = agent_open("near");
    OWNED(kvmem_agent) far = agent_open("far");
    OWNED(kvmem_descriptors) list = list_open(KVMEM_MEMORY_DRAM);
    add(list, memory, 4096);
    add(list, memory + 8192, 4096);
    GET(kvmem_segments *, segments, kvmem_segments_register, far, list, NULL);
    REFUSE(KVMEM_STATUS_ALREADY_EXISTS, "already registered", kvmem_segments_register, far, list, NULL);
    agents_introduce(near, far);
    OWN(kvmem_prepared, prepared, kvmem_prepared_create, near, "far", list, NULL);
    OWNED(kvmem_descriptors) other = list_open(KVMEM_MEMORY_DRAM);
    add(other, memory + 4096, 4096);
    REFUSE(KVMEM_STATUS_NOT_FOUND, "metadata must cover", kvmem_prepared_create, near, "far", other, NULL);
    check_unknown_is_named(near, far, memory);
    EXPECT_OK(kvmem_segments_deregister(segments, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "already", kvmem_segments_deregister(segments, ERR));
    kvmem_segments_destroy(segments);
    OWN(kvmem_segments, again, kvmem_segments_register, far, list, NULL); /* and once more */
}

TEST(backends_are_chosen) {
    static unsigned char memory[4096];
    OWNED(kvmem_agent) agent = agent_open("choosing");
    EXPECT_OK(kvmem_agent_create_backend(agent, "POSIX", NULL, 0, ERR));
    OWNED(kvmem_descriptors) list = list_open(KVMEM_MEMORY_DRAM);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "no descriptor", kvmem_segments_register, agent, list, NULL);
    add(list, memory, sizeof(memory));
    const kvmem_nixl_options only_posix = on_backend(posix);
    GET(kvmem_segments *, segments, kvmem_segments_register, agent, list, &only_posix);
    /* UCX has not registered it, so no peer can access it. */
    OWNED(kvmem_agent) peer = agent_open("peer");
    agents_introduce(peer, agent);
    REFUSE(KVMEM_STATUS_NOT_FOUND, "must cover", kvmem_prepared_create, peer, "choosing", list, NULL);
    kvmem_segments_destroy(segments);
    const kvmem_nixl_options only_ucx = on_backend(ucx);
    OWN(kvmem_segments, reachable, kvmem_segments_register, agent, list, &only_ucx);
    OWN(kvmem_blob, metadata, kvmem_agent_get_partial_metadata, agent, list, &only_ucx);
    EXPECT_OK(kvmem_agent_load_remote_metadata(peer, kvmem_blob_data(metadata), kvmem_blob_size(metadata),
                                               NULL,
                                               ERR));
    OWN(kvmem_prepared, prepared, kvmem_prepared_create, peer, "choosing", list, NULL);
    const char *const missing[] = {"OBJ"};
    const kvmem_nixl_options on_missing = on_backend(missing);
    OWNED(kvmem_descriptors) objects = list_open(KVMEM_MEMORY_OBJECT);
    add(objects, NULL, 4096);
    REFUSE(KVMEM_STATUS_NOT_FOUND, "has no OBJ backend", kvmem_segments_register, agent, objects,
           &on_missing);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "accepts no OBJECT memory", kvmem_segments_register, agent, objects,
           &only_ucx);
    REFUSE(KVMEM_STATUS_NIXL, "create a backend that accepts OBJECT memory", kvmem_segments_register, agent,
           objects,
           NULL);
}

/* NIXL returns the same status for all causes; the error names what UCX needs, and its settings. */
TEST(gpu_memory_without_a_gpu_fails_with_advice) {
    if (access("/dev/nvidiactl", F_OK) == 0) SKIP("a machine without a GPU");
    static unsigned char memory[4096];
    OWNED(kvmem_agent) agent = agent_open("no_gpu");
    OWNED(kvmem_descriptors) list = list_open(KVMEM_MEMORY_VRAM);
    add(list, memory, sizeof(memory));
    CHECK_EQ(setenv("UCX_TLS", "tcp", 1), 0);
    REFUSE(KVMEM_STATUS_NIXL, "with its UCX backend", kvmem_segments_register, agent, list, NULL);
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
    OWNED(kvmem_descriptors) list = list_open(KVMEM_MEMORY_FILE);
    const kvmem_descriptor files[] = {
        {.size = 10, .metadata = path, .metadata_size = strlen(path)},
        {.size = 10, .metadata = missing, .metadata_size = strlen(missing)},
    };
    EXPECT_OK(kvmem_descriptors_add(list, files, NUM(files), ERR));
    OWN(kvmem_query, query, kvmem_agent_query, agent, list, NULL);
    CHECK_EQ(kvmem_query_count(query), 2);
    GET(kvmem_query_result, there, kvmem_query_get, query, 0);
    CHECK_EQ(there.exists, 1);
    bool has_size = false;
    for (size_t i = 0; i < there.parameter_count; i++)
        has_size |= strcmp(there.parameters[i].value, "10") == 0;
    CHECK(has_size);
    GET(kvmem_query_result, absent, kvmem_query_get, query, 1);
    CHECK_EQ(absent.exists, 0);
    CHECK_EQ(absent.parameter_count, 0);
    kvmem_query_result past;
    EXPECT(KVMEM_STATUS_OUT_OF_RANGE, kvmem_query_get(query, 2, &past, ERR));
    EXPECT_OK(kvmem_descriptors_set(list, 1, &(kvmem_descriptor){.size = 10}, ERR));
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "descriptor 1 has no metadata", kvmem_agent_query, agent, list, NULL);
    EXPECT_OK(kvmem_descriptors_clear(list, ERR));
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "no descriptor to query", kvmem_agent_query, agent, list, NULL);
}

/* NIXL would register with it twice. */
TEST(a_backend_is_named_once) {
    static unsigned char memory[4096];
    OWNED(kvmem_agent) agent = agent_open("registering");
    OWNED(kvmem_descriptors) list = list_open(KVMEM_MEMORY_DRAM);
    add(list, memory, sizeof(memory));
    const char *names[] = {"UCX", "UCX"};
    const kvmem_nixl_options options = OPTIONS(kvmem_nixl_options, it.backends = names, it.backend_count = 2);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "backends has 'UCX' twice", kvmem_segments_register, agent, list,
           &options);
}

TEST(one_backend_is_queried) {
    static unsigned char memory[4096];
    OWNED(kvmem_agent) agent = agent_open("querying");
    EXPECT_OK(kvmem_agent_create_backend(agent, "POSIX", NULL, 0, ERR));
    OWNED(kvmem_descriptors) list = list_open(KVMEM_MEMORY_DRAM);
    add(list, memory, sizeof(memory));
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "POSIX and UCX accept DRAM memory", kvmem_agent_query, agent, list,
           NULL);
}

/* UCX allocates GPU memory for each view: the error says so. */
TEST(a_view_without_a_gpu_fails_with_advice) {
    static unsigned char memory[4096];
    OWNED(kvmem_agent) agent = agent_open("viewing");
    OWNED(kvmem_descriptors) list = list_open(KVMEM_MEMORY_DRAM);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "no descriptor", kvmem_memory_view_create, agent, list, NULL);
    add(list, memory, sizeof(memory));
    OWN(kvmem_segments, segments, kvmem_segments_register, agent, list, NULL);
    REFUSE(KVMEM_STATUS_NIXL, "UCX needs a GPU, also for other memory", kvmem_memory_view_create, agent, list, NULL);
    OWNED(kvmem_descriptors) remote = list_open(KVMEM_MEMORY_DRAM);
    const kvmem_descriptor of_far = {.address = (uintptr_t)memory, .size = 4096, .agent = "far"};
    EXPECT_OK(kvmem_descriptors_add(remote, &of_far, 1, ERR));
    REFUSE(KVMEM_STATUS_NOT_FOUND, "far", kvmem_memory_view_create, agent, remote, NULL);
    CHECK(kvmem_memory_view_handle(NULL) == NULL);
}
