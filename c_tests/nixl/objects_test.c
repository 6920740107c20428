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

/* An object: the key is metadata of the registration, the number is its device id. */
static kvmem_nixl_descriptor object(uint64_t number, const char *key) {
    return (kvmem_nixl_descriptor){.size = BLOCK, .device_id = number, .memory_type = KVMEM_MEMORY_OBJECT,
                                   .metadata = key, .metadata_size = strlen(key)};
}

static void store_open(store *store) {
    object_store_start();
    EXPECT_OK(kvmem_agent_create("storing", NULL, &store->agent, ERR));
    object_store_create_backend(store->agent);
    kv_fill(memory, sizeof(memory), 1);
    const kvmem_nixl_descriptor all = memory_at(memory, sizeof(memory));
    EXPECT_OK(kvmem_segments_register(store->agent, &all, 1, NULL, &store->segments, ERR));
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

static kvmem_status move_within(store *store, uint32_t operation, size_t block,
                                const kvmem_nixl_descriptor *to,
                                uint64_t limit) {
    const kvmem_nixl_descriptor here = memory_at(memory + block * BLOCK, BLOCK);
    const kvmem_nixl_options options = OPTIONS(kvmem_nixl_options, it.run_timeout_ns = limit);
    OWN(kvmem_request, request, kvmem_request_create, store->agent, operation, &here, "storing", to, 1,
        &options);
    return run(request);
}

static kvmem_status move(store *store, uint32_t operation, size_t block, const kvmem_nixl_descriptor *to) {
    return move_within(store, operation, block, to, 0);
}

TEST(objects_are_written_read_and_queried) {
    OPENED(store, store);
    const kvmem_nixl_descriptor first = object(1, "model/layer 0");
    const kvmem_nixl_descriptor second = object(2, "model/layer 1");
    OWN(kvmem_segments, of_first, kvmem_segments_register, store.agent, &first, 1, NULL);
    OWN(kvmem_segments, of_second, kvmem_segments_register, store.agent, &second, 1, NULL);
    OWN(kvmem_query, before, kvmem_agent_query, store.agent, &first, 1, NULL, KVMEM_TIMEOUT_FOREVER);
    const kvmem_query_result absent = before->items[0];
    CHECK_EQ(absent.exists, 0);

    EXPECT_OK(move(&store, KVMEM_REQUEST_WRITE, 0, &first));
    EXPECT_OK(move(&store, KVMEM_REQUEST_WRITE, 1, &second));
    CHECK_STR(python_send(&object_store, "list"), TEXT("model/layer 0:%d model/layer 1:%d", BLOCK, BLOCK));
    OWN(kvmem_query, after, kvmem_agent_query, store.agent, &first, 1, NULL, KVMEM_TIMEOUT_FOREVER);
    const kvmem_query_result there = after->items[0];
    CHECK_EQ(there.exists, 1);

    EXPECT_OK(move(&store, KVMEM_REQUEST_READ, 3, &second));
    CHECK_BYTES(memory + 3 * BLOCK, memory + BLOCK, BLOCK);
    EXPECT_OK(move(&store, KVMEM_REQUEST_READ, 2, &first));
    CHECK_BYTES(memory + 2 * BLOCK, memory, BLOCK);
    EXPECT_OK(kvmem_segments_deregister(of_first, ERR));
}

/* Prepared once, selected by index: a part of each object, from an offset. */
TEST(parts_of_objects_are_read_by_prepared_lists) {
    OPENED(store, store);
    const kvmem_nixl_descriptor objects[] = {object(1, "a"), object(2, "b")};
    OWN(kvmem_segments, both, kvmem_segments_register, store.agent, ARRAY(objects), NULL);
    const kvmem_nixl_descriptor blocks[] = {memory_at(memory, BLOCK), memory_at(memory + BLOCK, BLOCK)};
    OWN(kvmem_request, write, kvmem_request_create, store.agent, KVMEM_REQUEST_WRITE, blocks, "storing",
        objects,
        NUM(objects), NULL);
    EXPECT_OK(run(write)); /* two objects by one request */

    kvmem_nixl_descriptor parts[2], places[2];
    for (uint64_t i = 0; i < 2; i++) {
        parts[i] = (kvmem_nixl_descriptor){
            .address = 1000 * (i + 1), .size = 500, .device_id = i + 1, .memory_type = KVMEM_MEMORY_OBJECT};
        places[i] = memory_at(memory + (2 + i) * BLOCK, 500);
    }
    OWN(kvmem_prepared, local, kvmem_prepared_create, store.agent, NULL, ARRAY(places), NULL);
    OWN(kvmem_prepared, remote, kvmem_prepared_create, store.agent, "storing", ARRAY(parts), NULL);
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
    const kvmem_nixl_descriptor stored = object(1, "a");
    OWN(kvmem_segments, segments, kvmem_segments_register, store.agent, &stored, 1, NULL);
    EXPECT_OK(move(&store, KVMEM_REQUEST_WRITE, 0, &stored));
    const peer stopped = {object_store.pid, -1};
    peer_freeze(&stopped);
    const kvmem_nixl_descriptor here = memory_at(memory + BLOCK, BLOCK);
    OWN(kvmem_request, read, kvmem_request_create, store.agent, KVMEM_REQUEST_READ, &here, "storing", &stored,
        1,
        REF(OPTIONS(kvmem_nixl_options, it.run_timeout_ns = SECONDS(1))));
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
    const kvmem_nixl_descriptor stored = object(1, "missing");
    OWN(kvmem_segments, segments, kvmem_segments_register, store.agent, &stored, 1, NULL);
    for (int i = 0; i < 20; i++) {
        EXPECT_MESSAGE(KVMEM_STATUS_NOT_FOUND, "read object 'missing' of the OBJ backend",
                       move(&store, KVMEM_REQUEST_READ, 0, &stored));
    }
    EXPECT_OK(kvmem_segments_deregister(segments, ERR));
}

TEST(a_server_that_is_restarted_is_used_again) {
    OPENED(store, store);
    const kvmem_nixl_descriptor stored = object(1, "a");
    OWN(kvmem_segments, segments, kvmem_segments_register, store.agent, &stored, 1, NULL);
    EXPECT_OK(move(&store, KVMEM_REQUEST_WRITE, 0, &stored));
    object_store_kill();
    /* The plugin retries for a while, so the limit or the plugin's error may end the run. */
    const kvmem_status status = move_within(&store, KVMEM_REQUEST_READ, 1, &stored, SECONDS(1));
    CHECK(status == KVMEM_STATUS_TIMED_OUT || status == KVMEM_STATUS_NIXL);
    object_store_restart();
    EXPECT_OK(move(&store, KVMEM_REQUEST_WRITE, 0, &stored));
    EXPECT_OK(move(&store, KVMEM_REQUEST_READ, 2, &stored));
    CHECK_BYTES(memory + 2 * BLOCK, memory, BLOCK);
}
