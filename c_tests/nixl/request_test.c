// SPDX-License-Identifier: Apache-2.0
// Requests on raw descriptors: memory without a layout, files by their descriptors, prepared lists, and
// NIXL's reports.
#include "harness.h"

#include <fcntl.h>

#define NUM_BLOCKS 8
#define BLOCK 4096

/* Two agents of this process. Each has registered memory that is not a region, and descriptors of its
   blocks. */
typedef struct pair {
    kvmem_agent *near;
    kvmem_agent *far;
    unsigned char *here;
    unsigned char *there;
    kvmem_nixl_descriptor local[NUM_BLOCKS];
    kvmem_nixl_descriptor remote[NUM_BLOCKS];
    kvmem_segments *near_segments;
    kvmem_segments *far_segments;
} pair;

/* Every other block of the memory, so that no two are adjacent. */
static void list_blocks(kvmem_nixl_descriptor blocks[NUM_BLOCKS], const unsigned char *memory) {
    for (size_t i = 0; i < NUM_BLOCKS; i++) blocks[i] = memory_at(memory + 2 * i * BLOCK, BLOCK);
}

static kvmem_segments *register_all(kvmem_agent *agent, const unsigned char *memory) {
    const kvmem_nixl_descriptor all = memory_at(memory, 2 * NUM_BLOCKS * BLOCK);
    return MADE(kvmem_segments, kvmem_segments_register, agent, &all, 1, NULL);
}

static void pair_open(pair *pair, uint64_t flags) {
    const kvmem_agent_options options = OPTIONS(kvmem_agent_options, it.flags = flags);
    EXPECT_OK(kvmem_agent_create("near", &options, &pair->near, ERR));
    EXPECT_OK(kvmem_agent_create_backend(pair->near, "UCX", NULL, 0, ERR));
    pair->far = agent_open("far");
    pair->here = test_allocate(2 * NUM_BLOCKS * BLOCK);
    pair->there = test_allocate(2 * NUM_BLOCKS * BLOCK);
    kv_fill(pair->here, 2 * NUM_BLOCKS * BLOCK, 1);
    kv_fill(pair->there, 2 * NUM_BLOCKS * BLOCK, 2);
    list_blocks(pair->local, pair->here);
    list_blocks(pair->remote, pair->there);
    pair->near_segments = register_all(pair->near, pair->here);
    pair->far_segments = register_all(pair->far, pair->there);
    agents_introduce(pair->near, pair->far);
    agents_introduce(pair->far, pair->near);
}

static void pair_close(pair *pair) {
    kvmem_segments_destroy(pair->near_segments);
    kvmem_segments_destroy(pair->far_segments);
    kvmem_agent_destroy(pair->near);
    kvmem_agent_destroy(pair->far);
    free(pair->here);
    free(pair->there);
}

/* A request for all blocks in this direction, and a read of them. */
static kvmem_request *request_of(const pair *pair, uint32_t direction, const kvmem_nixl_options *options) {
    return MADE(kvmem_request, kvmem_request_create, pair->near, direction, pair->local, "far", pair->remote,
                NUM_BLOCKS, options);
}

static kvmem_request *read_of(const pair *pair) { return request_of(pair, KVMEM_REQUEST_READ, NULL); }

static void run(kvmem_request *request) {
    EXPECT_OK(kvmem_request_post(request, NULL, 0, ERR));
    EXPECT_OK(kvmem_request_wait(request, PATIENCE, ERR));
    EXPECT_OK(kvmem_request_poll(request, ERR));
}

/* The blocks are equal, and the bytes between them are not. */
static void check_blocks_equal(const pair *pair) {
    for (size_t i = 0; i < NUM_BLOCKS; i++) {
        CHECK_BYTES(pair->here + 2 * i * BLOCK, pair->there + 2 * i * BLOCK, BLOCK);
        CHECK(memcmp(pair->here + (2 * i + 1) * BLOCK, pair->there + (2 * i + 1) * BLOCK, BLOCK) != 0);
    }
}

TEST(descriptors_are_read_and_written_repeatedly) {
    OPENED(pair, both, 0);
    OWNED(kvmem_request) read = read_of(&both);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "kvmem_request_post", kvmem_request_poll(read, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "kvmem_request_post", kvmem_request_wait(read, 0, ERR));
    run(read);
    check_blocks_equal(&both);
    OWNED(kvmem_request) write = request_of(&both, KVMEM_REQUEST_WRITE, NULL);
    for (uint32_t seed = 3; seed < 6; seed++) {
        kv_fill(both.here, 2 * NUM_BLOCKS * BLOCK, seed);
        run(write);
        check_blocks_equal(&both);
    }
}

TEST(ends_are_reported_to_the_queue) {
    OPENED(pair, both, 0);
    OWN(kvmem_queue, queue, kvmem_queue_create);
    kvmem_request *read = request_of(&both, KVMEM_REQUEST_READ,
                                     REF(OPTIONS(kvmem_nixl_options, it.queue = queue, it.user_data = 77)));
    EXPECT_OK(kvmem_request_post(read, NULL, 0, ERR));
    kvmem_request_destroy(read); /* in flight, or just complete: the run ends, and is reported */
    const kvmem_completion completion = next_completion(queue);
    CHECK_EQ(completion.user_data, 77);
    CHECK_EQ(completion.bytes, NUM_BLOCKS * BLOCK);
    CHECK_EQ(completion.status, KVMEM_STATUS_OK);
    check_blocks_equal(&both);
    EXPECT_OK(kvmem_segments_deregister(both.near_segments, ERR)); /* nothing uses the memory */
}

TEST(descriptors_of_prepared_lists_are_selected_by_index) {
    OPENED(pair, both, 0);
    OWN(kvmem_prepared, local, kvmem_prepared_create, both.near, NULL, ARRAY(both.local), NULL);
    OWN(kvmem_prepared, remote, kvmem_prepared_create, both.near, "far", ARRAY(both.remote), NULL);
    const uint32_t here[] = {5, 0, 3};
    const uint32_t there[] = {1, 7, 2};
    OWN(kvmem_request, read, kvmem_request_make, KVMEM_REQUEST_READ, local, here, remote, there, 3, NULL);
    kvmem_prepared_destroy(local); /* the request keeps it */
    local = NULL;
    run(read);
    for (size_t i = 0; i < 3; i++)
        CHECK_BYTES(both.here + (size_t)2 * here[i] * BLOCK, both.there + (size_t)2 * there[i] * BLOCK,
                    BLOCK);
    CHECK(memcmp(both.here + 2 * BLOCK, both.there + 2 * BLOCK, BLOCK) != 0);
}

TEST(lists_that_do_not_match_fail) {
    OPENED(pair, both, 0);
    OWN(kvmem_prepared, local, kvmem_prepared_create, both.near, NULL, ARRAY(both.local), NULL);
    OWN(kvmem_prepared, remote, kvmem_prepared_create, both.near, "far", ARRAY(both.remote), NULL);
    OWN(kvmem_prepared, of_far, kvmem_prepared_create, both.far, "near", ARRAY(both.local), NULL);
    const uint32_t index[] = {NUM_BLOCKS};
    const uint32_t zero[] = {0};
    REFUSE(KVMEM_STATUS_OUT_OF_RANGE, "local_indices[0] is 8", kvmem_request_make, 1, local, index, remote,
           zero, 1, NULL);
    REFUSE(KVMEM_STATUS_OUT_OF_RANGE, "remote_indices[0] is 8", kvmem_request_make, 1, local, zero, remote,
           index, 1,
           NULL);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "count", kvmem_request_make, 1, local, zero, remote, zero, 0, NULL);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "operation", kvmem_request_make, 3, local, zero, remote, zero, 1,
           NULL);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "for the remote side", kvmem_request_make, 1, remote, zero, remote,
           zero, 1,
           NULL);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "for the local side", kvmem_request_make, 1, local, zero, local,
           zero, 1, NULL);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "prepared by agent 'near', the remote list by agent 'far'",
           kvmem_request_make,
           1, local, zero, of_far, zero, 1, NULL);
    both.remote[2].size = 8;
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "descriptor 2 has 4096 bytes on the local side and 8",
           kvmem_request_create, both.near, 1, both.local, "far", both.remote, NUM_BLOCKS, NULL);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "no descriptors", kvmem_request_create, both.near, 1, both.local,
           "far",
           both.remote, 0, NULL);
    REFUSE(KVMEM_STATUS_NOT_FOUND, "stranger", kvmem_request_create, both.near, 1, both.local, "stranger",
           both.local, NUM_BLOCKS, NULL);
    static unsigned char elsewhere[BLOCK];
    const kvmem_nixl_descriptor unknown = memory_at(elsewhere, BLOCK);
    REFUSE(KVMEM_STATUS_NOT_FOUND, "metadata must cover the memory of the peer", kvmem_request_create,
           both.near, 1, both.local, "far", &unknown, 1, NULL);
    REFUSE(KVMEM_STATUS_NOT_FOUND, "memory of the agent must be registered", kvmem_request_create, both.near,
           1, &unknown, "far", both.remote, 1, NULL);
}

TEST(notifications_of_a_request_can_be_replaced) {
    OPENED(pair, both, 0);
    kvmem_nixl_options options = OPTIONS(kvmem_nixl_options, it.notification = "a\0b",
                                         it.notification_size = 3);
    OWNED(kvmem_request) write = request_of(&both, KVMEM_REQUEST_WRITE, &options);
    run(write);
    agent_expect_notification(both.far, "near", "a\0b", 3);
    EXPECT_OK(kvmem_request_post(write, "other", 5, ERR));
    EXPECT_OK(kvmem_request_wait(write, PATIENCE, ERR));
    agent_expect_notification(both.far, "near", "other", 5);
    options = OPTIONS(kvmem_nixl_options, it.flags = KVMEM_NIXL_NOTIFY | KVMEM_NIXL_SKIP_MERGE);
    OWNED(kvmem_request) empty = request_of(&both, KVMEM_REQUEST_READ, &options);
    run(empty);
    agent_expect_notification(both.far, "near", "", 0);
}

TEST(backend_cost_and_telemetry_of_a_request) {
    OPENED(pair, both, KVMEM_AGENT_TELEMETRY);
    EXPECT_OK(kvmem_agent_create_backend(both.near, "POSIX", NULL, 0, ERR));
    OWNED(kvmem_request) read = read_of(&both);
    OWN(kvmem_blob, backend, kvmem_request_get_backend, read);
    CHECK_STR((const char *)kvmem_blob_data(backend), "UCX");
    kvmem_request_cost cost;
    memset(&cost, 0xEE, sizeof(cost));
    EXPECT_OK(kvmem_request_estimate(read, &cost, ERR));
    CHECK_EQ(cost.method, 0);
    CHECK_EQ(cost.reserved, 0);
    CHECK(cost.duration_ns < SECONDS(1)); /* UCX may estimate less than a microsecond, which is 0 */
    kvmem_request_telemetry telemetry;
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "kvmem_request_post", kvmem_request_get_telemetry(read,
            &telemetry, ERR));
    run(read);
    EXPECT_OK(kvmem_request_get_telemetry(read, &telemetry, ERR));
    CHECK_EQ(telemetry.bytes, NUM_BLOCKS * BLOCK);
    CHECK_EQ(telemetry.descriptors, NUM_BLOCKS);
    CHECK(telemetry.start_ns > 0);
}

/* The sum over all runs: requests on raw descriptors and transfers, in both directions, and messages. */
TEST(an_agent_has_the_sums_of_its_runs) {
    OPENED(pair, both, KVMEM_AGENT_TELEMETRY);
    GET(kvmem_agent_telemetry, none, kvmem_agent_get_telemetry, both.near);
    CHECK_FILLED((const unsigned char *)&none, 0, sizeof(none));
    OWNED(kvmem_request) read = read_of(&both);
    run(read);
    run(read);
    GET(kvmem_request_telemetry, last, kvmem_request_get_telemetry, read);
    GET(kvmem_agent_telemetry, after_reads, kvmem_agent_get_telemetry, both.near);
    CHECK_EQ(after_reads.succeeded, 2);
    CHECK_EQ(after_reads.bytes_read, 2 * NUM_BLOCKS * BLOCK);
    CHECK_EQ(after_reads.bytes_written, 0);
    CHECK_EQ(after_reads.descriptors, 2 * NUM_BLOCKS);
    CHECK_EQ(after_reads.in_flight, 0);
    CHECK(after_reads.duration_ns >= last.duration_ns);
    CHECK(after_reads.longest_ns >= last.duration_ns);
    CHECK(after_reads.duration_ns <= 2 * after_reads.longest_ns);

    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OPENED(kv_side, near_side, &config, both.near, 3);
    OPENED(kv_side, far_side, &config, both.far, 4);
    agents_introduce(both.near, both.far); /* again, now with the memory of the layout */
    OWNED(kvmem_layout) remote = layout_import(both.near, far_side.layout);
    const kv_move move = KV_MOVE(3, {0, 1}, {4, 6});
    const kvmem_transfer_info info = kv_run(near_side.layout, remote, &move);
    EXPECT_OK(kvmem_agent_notify(both.near, "far", "x", 1, ERR));
    agents_introduce(both.far, both.near);
    EXPECT_OK(kvmem_agent_notify(both.far, "near", "y", 1, ERR));
    agent_expect_notification(both.near, "far", "y", 1);
    GET(kvmem_agent_telemetry, all, kvmem_agent_get_telemetry, both.near);
    CHECK_EQ(all.succeeded, 2 + info.num_requests);
    CHECK_EQ(all.failed, 0);
    CHECK_EQ(all.bytes_written, info.bytes);
    CHECK_EQ(all.bytes_read, after_reads.bytes_read);
    CHECK_EQ(all.notifications_sent, 1);
    CHECK_EQ(all.notifications_received, 1);
    kvmem_agent_telemetry absent;
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "KVMEM_AGENT_TELEMETRY",
                   kvmem_agent_get_telemetry(both.far, &absent, ERR));
}

TEST(without_telemetry_the_error_names_the_setting) {
    OPENED(pair, both, 0);
    OWNED(kvmem_request) read = read_of(&both);
    run(read);
    kvmem_request_telemetry telemetry;
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "KVMEM_AGENT_TELEMETRY",
                   kvmem_request_get_telemetry(read, &telemetry, ERR));
}

TEST(an_invalidated_peer_makes_requests_stale) {
    OPENED(pair, both, 0);
    OWN(kvmem_prepared, local, kvmem_prepared_create, both.near, NULL, ARRAY(both.local), NULL);
    OWN(kvmem_prepared, remote, kvmem_prepared_create, both.near, "far", ARRAY(both.remote), NULL);
    OWNED(kvmem_request) read = read_of(&both);
    run(read);
    GET(size_t, count, kvmem_agent_invalidate_remote_metadata, both.near, NULL);
    CHECK_EQ(count, 1);
    EXPECT(KVMEM_STATUS_STALE, kvmem_request_post(read, NULL, 0, ERR));
    const uint32_t zero[] = {0};
    REFUSE(KVMEM_STATUS_STALE, "prepare the list again", kvmem_request_make, 1, local, zero, remote, zero, 1,
           NULL);
    REFUSE(KVMEM_STATUS_NOT_FOUND, "far", kvmem_request_create, both.near, 1, both.local, "far", both.remote,
           NUM_BLOCKS, NULL);
    agents_introduce(both.near, both.far); /* the same peer once more */
    EXPECT(KVMEM_STATUS_STALE, kvmem_request_post(read, NULL, 0, ERR));
    OWNED(kvmem_request) again = read_of(&both);
    run(again);
    EXPECT_OK(kvmem_agent_invalidate_remote_metadata(both.near, NULL, NULL, ERR));
    EXPECT_OK(kvmem_agent_invalidate_remote_metadata(both.near, NULL, &count, ERR));
    CHECK_EQ(count, 0);
}

/* The owner has no layout; this side describes its memory as one. */
TEST(raw_memory_of_a_peer_is_a_layout) {
    OPENED(pair, both, 0);
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OPENED(kv_side, side, &config, both.near, 4);
    const uint64_t size = kv_region_size(&config);
    CHECK(size <= 2 * NUM_BLOCKS * BLOCK);
    const kvmem_nixl_descriptor there = memory_at(both.there, size);
    OWN(kvmem_layout, remote, kvmem_layout_create_remote, both.near, "far", &config, &there, 1);
    CHECK_STR(layout_info(remote).agent, "far");
    const kv_move move = KV_MOVE(3, {2, 1});
    kv_run(side.layout, remote, &move);
    for (uint32_t i = 0; i < 6; i++) { /* layers and outer slots */
        GET(kvmem_block, source, kvmem_layout_get_block, side.layout, 2, i / 2, i % 2);
        GET(kvmem_block, destination, kvmem_layout_get_block, remote, 1, i / 2, i % 2);
        CHECK(destination.address >= (uintptr_t)both.there);
        CHECK_BYTES((const void *)(uintptr_t)destination.address, (const void *)(uintptr_t)source.address,
                    source.size);
    }
    REFUSE(KVMEM_STATUS_NOT_FOUND, "stranger", kvmem_layout_create_remote, both.near, "stranger", &config,
           &there, 1);
    const kvmem_nixl_descriptor small = memory_at(both.there, size - 1);
    REFUSE(KVMEM_STATUS_OUT_OF_RANGE, "needs", kvmem_layout_create_remote, both.near, "far", &config, &small,
           1);
    const kvmem_nixl_descriptor two[] = {memory_at(both.here, size), there};
    REFUSE(KVMEM_STATUS_NOT_FOUND, "does not cover", kvmem_layout_create_remote, both.near, "far", &config,
           two, 1);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "needs 1 regions, 2 are given", kvmem_layout_create_remote,
           both.near, "far", &config, two, 2);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "needs 1 regions, 0 are given", kvmem_layout_create_remote,
           both.near, "far", &config, NULL, 0);
    const kvmem_nixl_descriptor file = {.size = size, .memory_type = KVMEM_MEMORY_FILE};
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "FILE memory", kvmem_layout_create_remote, both.near, "far", &config,
           &file, 1);
}

TEST(layers_in_the_same_raw_memory_are_no_layout) {
    OPENED(pair, both, 0);
    kvmem_layout_config config = kv_config(&kv_kinds[1]);
    CHECK_STR(config.order, KVMEM_ORDER_LAYER_SEPARATE);
    const uint64_t size = kv_region_size(&config);
    CHECK(config.num_layers * size <= 2 * NUM_BLOCKS * BLOCK);
    kvmem_nixl_descriptor there[8];
    CHECK(config.num_layers <= NUM(there));
    for (uint64_t i = 0; i < config.num_layers; i++) there[i] = memory_at(both.there + i * size, size);
    OWN(kvmem_layout, remote, kvmem_layout_create_remote, both.near, "far", &config, there,
        config.num_layers);
    there[config.num_layers - 1] = there[0];
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "overlap", kvmem_layout_create_remote, both.near, "far", &config,
           there,
           config.num_layers);
}

/* The region of a descriptor is kept with its registration. */
TEST(a_request_keeps_the_registration_of_a_region) {
    OPENED(pair, both, 0);
    OWN(kvmem_region, region, kvmem_region_create_system, REF(OPTIONS(kvmem_system_options,
                                                                      it.size = BLOCK)));
    OWN(kvmem_registration, registration, kvmem_region_register, region, both.near);
    const kvmem_nixl_descriptor whole = region_descriptor(region);
    CHECK(whole.region == region);
    GET(kvmem_request *, read, kvmem_request_create, both.near, KVMEM_REQUEST_READ, &whole, "far",
        both.remote,
        1, NULL);
    EXPECT(KVMEM_STATUS_BUSY, kvmem_registration_deregister(registration, ERR));
    run(read);
    CHECK_BYTES((const void *)(uintptr_t)region_info(region).address, both.there, BLOCK);
    kvmem_request_destroy(read);
    EXPECT_OK(kvmem_registration_deregister(registration, ERR));
}

/* NIXL's requests contain pointers to the registration of their memory. */
TEST(deregistering_memory_makes_idle_requests_and_lists_stale) {
    OPENED(pair, both, 0);
    OWNED(kvmem_request) read = read_of(&both);
    OWN(kvmem_prepared, local, kvmem_prepared_create, both.near, NULL, ARRAY(both.local), NULL);
    OWN(kvmem_prepared, remote, kvmem_prepared_create, both.near, "far", ARRAY(both.remote), NULL);
    run(read);
    EXPECT_OK(kvmem_segments_deregister(both.near_segments, ERR));
    EXPECT_OK(kvmem_request_post(read, NULL, 0, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_STALE, "memory deregistered", kvmem_request_wait(read, PATIENCE, ERR));
    const uint32_t zero[] = {0};
    REFUSE(KVMEM_STATUS_STALE, "", kvmem_request_make, 1, local, zero, remote, zero, 1, NULL);
    /* The same for a region whose memory is given by address. */
    OWN(kvmem_region, region, kvmem_region_create_system,
        REF(OPTIONS(kvmem_system_options, it.size = BLOCK)));
    OWN(kvmem_registration, registration, kvmem_region_register, region, both.near);
    const kvmem_nixl_descriptor block = WITH(region_descriptor(region), it.region = NULL);
    OWN(kvmem_request, other, kvmem_request_create, both.near, KVMEM_REQUEST_READ, &block, "far", both.remote,
        1,
        NULL);
    EXPECT_OK(kvmem_registration_deregister(registration, ERR));
    EXPECT_OK(kvmem_request_post(other, NULL, 0, ERR));
    EXPECT(KVMEM_STATUS_STALE, kvmem_request_wait(other, PATIENCE, ERR));
}

/* The agent itself owns the file. */
TEST(files_are_written_and_read_by_their_descriptors) {
    static unsigned char memory[2 * BLOCK];
    kv_fill(memory, BLOCK, 1);
    OWN(kvmem_agent, agent, kvmem_agent_create, "files", NULL);
    EXPECT_OK(kvmem_agent_create_backend(agent, "POSIX", NULL, 0, ERR));
    SCRATCH(directory);
    CLEANUP(test_close) const int fd = open(scratch_file(&directory, "data"), O_RDWR | O_CREAT | O_CLOEXEC,
                                            0600);
    CHECK(fd >= 0);
    CHECK_EQ(ftruncate(fd, 4 * BLOCK), 0);
    const kvmem_nixl_descriptor file = {
        .size = 4 * BLOCK, .device_id = (uint64_t)fd, .memory_type = KVMEM_MEMORY_FILE};
    OWN(kvmem_segments, in_file, kvmem_segments_register, agent, &file, 1, NULL);
    const kvmem_nixl_descriptor host = memory_at(memory, sizeof(memory));
    OWN(kvmem_segments, in_memory, kvmem_segments_register, agent, &host, 1, NULL);
    const kvmem_nixl_descriptor third = WITH(file, it.address = 2 * BLOCK, it.size = BLOCK);
    const kvmem_nixl_descriptor blocks[] = {memory_at(memory, BLOCK), memory_at(memory + BLOCK, BLOCK)};
    OWN(kvmem_request, write, kvmem_request_create, agent, KVMEM_REQUEST_WRITE, &blocks[0], "files", &third,
        1, NULL);
    run(write);
    CHECK_EQ(pread(fd, memory + BLOCK, BLOCK, 2 * BLOCK), BLOCK);
    CHECK_BYTES(memory + BLOCK, memory, BLOCK);
    OWN(kvmem_blob, backend, kvmem_request_get_backend, write);
    CHECK_STR((const char *)kvmem_blob_data(backend), "POSIX");
    memset(memory + BLOCK, 0, BLOCK);
    OWN(kvmem_request, read, kvmem_request_create, agent, KVMEM_REQUEST_READ, &blocks[1], "files", &third, 1,
        NULL);
    run(read);
    CHECK_BYTES(memory + BLOCK, memory, BLOCK);
}

/* NIXL reports one status for all reasons. */
TEST(a_request_for_a_file_that_is_not_open_is_explained) {
    static unsigned char memory[BLOCK];
    OWN(kvmem_agent, agent, kvmem_agent_create, "files", NULL);
    EXPECT_OK(kvmem_agent_create_backend(agent, "POSIX", NULL, 0, ERR));
    const kvmem_nixl_descriptor file = {.size = BLOCK, .device_id = 900, .memory_type = KVMEM_MEMORY_FILE};
    OWN(kvmem_segments, in_file, kvmem_segments_register, agent, &file, 1, NULL);
    const kvmem_nixl_descriptor host = memory_at(memory, sizeof(memory));
    OWN(kvmem_segments, in_memory, kvmem_segments_register, agent, &host, 1, NULL);
    OWN(kvmem_request, read, kvmem_request_create, agent, KVMEM_REQUEST_READ, &host, "files", &file, 1, NULL);
    EXPECT_OK(kvmem_request_post(read, NULL, 0, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_NIXL, "read 1 descriptor of files by the POSIX backend",
                   kvmem_request_wait(read, PATIENCE, ERR));
    CHECK_HAS(test_last_message(), "check that each device_id is a file descriptor");
}
