// SPDX-License-Identifier: Apache-2.0
// Objects of an S3-compatible server, which this test starts on loopback: registered as segments, written,
// read and queried; and a server without an object, or one that stops, ends or is restarted.
#include "harness.h"
#include "object_store.h"

#define NUM_BLOCKS 4
#define BLOCK 65536

REQUIRES(object_store_lacks)

/* The blocks of all cases. */
static unsigned char memory[NUM_BLOCKS * BLOCK];

typedef struct store {
    kvmem_agent *agent;
    kvmem_segments *segments;
} store;

static kvmem_descriptors *block_at(const unsigned char *address) {
    GET(kvmem_descriptors *, list, kvmem_descriptors_create, KVMEM_MEMORY_DRAM);
    EXPECT_OK(kvmem_descriptors_add(list, &(kvmem_descriptor){.address = (uintptr_t)address, .size = BLOCK}, 1,
                                    ERR));
    return list;
}

/* An object: the key is metadata of the registration, the number is its device id. */
static kvmem_descriptors *object(uint64_t number, uint64_t offset, const char *key) {
    GET(kvmem_descriptors *, list, kvmem_descriptors_create, KVMEM_MEMORY_OBJECT);
    const kvmem_descriptor descriptor = {
        .address = offset, .size = BLOCK, .device_id = number, .metadata = key, .metadata_size = strlen(key)};
    EXPECT_OK(kvmem_descriptors_add(list, &descriptor, 1, ERR));
    return list;
}

static void store_open(store *store) {
    object_store_start();
    EXPECT_OK(kvmem_agent_create("storing", NULL, &store->agent, ERR));
    object_store_create_backend(store->agent);
    kv_fill(memory, sizeof(memory), 1);
    OWN(kvmem_descriptors, all, kvmem_descriptors_create, KVMEM_MEMORY_DRAM);
    EXPECT_OK(kvmem_descriptors_add(all, &(kvmem_descriptor){.address = (uintptr_t)memory, .size = sizeof(memory)},
                                    1, ERR));
    EXPECT_OK(kvmem_segments_register(store->agent, all, NULL, &store->segments, ERR));
}

static void store_close(store *store) {
    kvmem_segments_destroy(store->segments);
    kvmem_agent_destroy(store->agent);
}

static kvmem_status run(kvmem_request *request) {
    kvmem_status status = kvmem_request_post(request, NULL, 0, ERR);
    THEN(status, kvmem_request_wait(request, PATIENCE, ERR));
    return status;
}

static kvmem_status move_within(store *store, uint32_t operation, size_t block, const kvmem_descriptors *to,
                                uint64_t limit) {
    OWNED(kvmem_descriptors) here = block_at(memory + block * BLOCK);
    const kvmem_nixl_options options = OPTIONS(kvmem_nixl_options, it.timeout_ns = limit);
    OWN(kvmem_request, request, kvmem_request_create, store->agent, operation, here, "storing", to, &options);
    return run(request);
}

static kvmem_status move(store *store, uint32_t operation, size_t block, const kvmem_descriptors *to) {
    return move_within(store, operation, block, to, 0);
}

TEST(objects_are_written_read_and_queried) {
    OPENED(store, store);
    OWNED(kvmem_descriptors) first = object(1, 0, "model/layer 0");
    OWNED(kvmem_descriptors) second = object(2, 0, "model/layer 1");
    OWN(kvmem_segments, of_first, kvmem_segments_register, store.agent, first, NULL);
    OWN(kvmem_segments, of_second, kvmem_segments_register, store.agent, second, NULL);
    OWN(kvmem_query, before, kvmem_agent_query, store.agent, first, NULL);
    GET(kvmem_query_result, absent, kvmem_query_get, before, 0);
    CHECK_EQ(absent.exists, 0);

    EXPECT_OK(move(&store, KVMEM_REQUEST_WRITE, 0, first));
    EXPECT_OK(move(&store, KVMEM_REQUEST_WRITE, 1, second));
    CHECK_STR(python_send(&object_store, "list"), TEXT("model/layer 0:%d model/layer 1:%d", BLOCK, BLOCK));
    OWN(kvmem_query, after, kvmem_agent_query, store.agent, first, NULL);
    GET(kvmem_query_result, there, kvmem_query_get, after, 0);
    CHECK_EQ(there.exists, 1);

    EXPECT_OK(move(&store, KVMEM_REQUEST_READ, 3, second));
    CHECK_BYTES(memory + 3 * BLOCK, memory + BLOCK, BLOCK);
    EXPECT_OK(move(&store, KVMEM_REQUEST_READ, 2, first));
    CHECK_BYTES(memory + 2 * BLOCK, memory, BLOCK);
    EXPECT_OK(kvmem_segments_deregister(of_first, ERR));
}

/* Prepared once, selected by index: a part of each object, from an offset. */
TEST(parts_of_objects_are_read_by_prepared_lists) {
    OPENED(store, store);
    OWNED(kvmem_descriptors) objects = object(1, 0, "a");
    const kvmem_descriptor other = {.size = BLOCK, .device_id = 2, .metadata = "b", .metadata_size = 1};
    EXPECT_OK(kvmem_descriptors_add(objects, &other, 1, ERR));
    OWN(kvmem_segments, both, kvmem_segments_register, store.agent, objects, NULL);
    OWNED(kvmem_descriptors) blocks = block_at(memory);
    EXPECT_OK(kvmem_descriptors_add(blocks, &(kvmem_descriptor){.address = (uintptr_t)memory + BLOCK,
                                                                .size = BLOCK}, 1, ERR));
    OWN(kvmem_request, write, kvmem_request_create, store.agent, KVMEM_REQUEST_WRITE, blocks, "storing", objects,
        NULL);
    EXPECT_OK(run(write)); /* two objects by one request */

    OWN(kvmem_descriptors, parts, kvmem_descriptors_create, KVMEM_MEMORY_OBJECT);
    OWN(kvmem_descriptors, places, kvmem_descriptors_create, KVMEM_MEMORY_DRAM);
    for (uint64_t number = 1; number <= 2; number++) {
        const kvmem_descriptor part = {.address = 1000 * number, .size = 500, .device_id = number};
        const kvmem_descriptor place = {.address = (uintptr_t)memory + (1 + number) * BLOCK, .size = 500};
        EXPECT_OK(kvmem_descriptors_add(parts, &part, 1, ERR));
        EXPECT_OK(kvmem_descriptors_add(places, &place, 1, ERR));
    }
    OWN(kvmem_prepared, local, kvmem_prepared_create, store.agent, NULL, places, NULL);
    OWN(kvmem_prepared, remote, kvmem_prepared_create, store.agent, "storing", parts, NULL);
    const uint32_t here[] = {0, 1};
    const uint32_t there[] = {1, 0};
    OWN(kvmem_request, read, kvmem_request_make, KVMEM_REQUEST_READ, local, here, remote, there, 2, NULL);
    EXPECT_OK(run(read));
    CHECK_BYTES(memory + 2 * BLOCK, memory + BLOCK + 2000, 500);
    CHECK_BYTES(memory + 3 * BLOCK, memory + 1000, 500);
}

/* With such parameters the plugin ends no request, or does not return when the backend is created. */
TEST(a_backend_without_threads_is_refused) {
    OWN(kvmem_agent, agent, kvmem_agent_create, "storing", NULL);
    static const char *const refused[] = {"0", " 00", "100000"};
    for (size_t i = 0; i < NUM(refused); i++) {
        const kvmem_parameter parameters[] = {{"bucket", "blocks"}, {"num_threads", refused[i]}};
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "the parameter num_threads",
                       kvmem_agent_create_backend(agent, "OBJ", parameters, NUM(parameters), ERR));
    }
}

/* The server is stopped: a run with a limit ends in time, and its request completes once the server
   continues. */
TEST(a_stopped_server_ends_a_run_with_a_limit_in_time) {
    OPENED(store, store);
    OWNED(kvmem_descriptors) objects = object(1, 0, "a");
    OWN(kvmem_segments, segments, kvmem_segments_register, store.agent, objects, NULL);
    EXPECT_OK(move(&store, KVMEM_REQUEST_WRITE, 0, objects));
    const peer stopped = {object_store.pid, -1};
    peer_freeze(&stopped);
    OWNED(kvmem_descriptors) here = block_at(memory + BLOCK);
    OWN(kvmem_request, read, kvmem_request_create, store.agent, KVMEM_REQUEST_READ, here, "storing", objects,
        REF(OPTIONS(kvmem_nixl_options, it.timeout_ns = SECONDS(1))));
    EXPECT_MESSAGE(KVMEM_STATUS_TIMED_OUT, "was not complete after 1000 ms", run(read));
    EXPECT(KVMEM_STATUS_BUSY, kvmem_request_post(read, NULL, 0, ERR));
    peer_thaw(&stopped);
    kvmem_status status = KVMEM_STATUS_BUSY;
    while (status == KVMEM_STATUS_BUSY) { /* only the deadline of the process limits this */
        status = kvmem_request_post(read, NULL, 0, ERR);
    }
    CHECK_EQ(status, KVMEM_STATUS_OK);
    while (kvmem_request_poll(read, ERR) == KVMEM_STATUS_IN_PROGRESS) sched_yield();
    CHECK_BYTES(memory + BLOCK, memory, BLOCK);
}

/* A failed request leaves nothing in use: the memory of the object can be deregistered. */
TEST(an_object_that_does_not_exist_is_named) {
    OPENED(store, store);
    OWNED(kvmem_descriptors) objects = object(1, 0, "missing");
    OWN(kvmem_segments, segments, kvmem_segments_register, store.agent, objects, NULL);
    for (int i = 0; i < 20; i++) {
        EXPECT_MESSAGE(KVMEM_STATUS_NOT_FOUND, "read object 'missing' of the OBJ backend",
                       move(&store, KVMEM_REQUEST_READ, 0, objects));
    }
    EXPECT_OK(kvmem_segments_deregister(segments, ERR));
}

TEST(a_server_that_is_restarted_is_used_again) {
    OPENED(store, store);
    OWNED(kvmem_descriptors) objects = object(1, 0, "a");
    OWN(kvmem_segments, segments, kvmem_segments_register, store.agent, objects, NULL);
    EXPECT_OK(move(&store, KVMEM_REQUEST_WRITE, 0, objects));
    object_store_kill();
    /* The plugin retries for a while, so the limit or the plugin's error may end the run. */
    const kvmem_status status = move_within(&store, KVMEM_REQUEST_READ, 1, objects, SECONDS(1));
    CHECK(status == KVMEM_STATUS_TIMED_OUT || status == KVMEM_STATUS_NIXL);
    object_store_restart();
    EXPECT_OK(move(&store, KVMEM_REQUEST_WRITE, 0, objects));
    EXPECT_OK(move(&store, KVMEM_REQUEST_READ, 2, objects));
    CHECK_BYTES(memory + 2 * BLOCK, memory, BLOCK);
}
