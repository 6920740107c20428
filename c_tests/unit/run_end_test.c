// SPDX-License-Identifier: Apache-2.0
// Once the end of a run is reported, the library holds the caller's layouts and regions no longer for it.
#include "harness.h"

#define BLOCKS 96 /* enough for several threads */
#define RUNS 150

static kvmem_block_pair pairs[BLOCKS];
static const kv_move all_blocks = {pairs, NUM(pairs), 0, 0, 3};

/* Two regions that outlive all layouts over them. */
typedef struct world {
    kvmem_layout_config config;
    kvmem_region *regions[2];
    void *memory[2];
    kvmem_queue *queue;
} world;

static kvmem_region *region_of_memory(world *world, int side, uint64_t size) {
    world->memory[side] = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    CHECK(world->memory[side] != NULL);
    memset(world->memory[side], 1, size);
    return region_adopt(world->memory[side], size);
}

static world open_world(bool from_file, bool to_file) {
    world world = {.config = kv_aligned_config(&kv_kinds[0])};
    world.config.num_blocks = BLOCKS;
    for (uint32_t i = 0; i < BLOCKS; i++) pairs[i] = (kvmem_block_pair){i, i};
    const uint64_t size = kv_region_size(&world.config);
    world.regions[0] = from_file ? region_create_temporary_file(size) : region_of_memory(&world, 0, size);
    world.regions[1] = to_file ? region_create_temporary_file(size) : region_of_memory(&world, 1, size);
    EXPECT_OK(kvmem_queue_create(&world.queue, ERR));
    return world;
}

static void world_close(world *world) {
    kvmem_queue_destroy(world->queue);
    for (int side = 0; side < 2; side++) {
        kvmem_region_destroy(world->regions[side]);
        free(world->memory[side]);
    }
}

static void expect_unused(const world *world) {
    for (int side = 0; side < 2; side++) CHECK_EQ(region_holders(world->regions[side]).references, 1);
}

/* One run, whose end is taken from the queue. */
static void run_once(world *world, uint32_t method, uint64_t flags, bool cancel) {
    kvmem_layout *layouts[2];
    for (int side = 0; side < 2; side++)
        layouts[side] = regions_lay_out(&world->config, &world->regions[side], 1, NULL);
    kv_job options = WITH(kv_job_of(&all_blocks), it.transfer.method = method, KV_SET_FLAGS(flags),
                                          it.transfer.queue = world->queue);
    GET(kvmem_transfer *, transfer, kv_prepare, layouts[0], layouts[1], &options);
    EXPECT_OK(kvmem_transfer_submit(transfer, NULL, ERR));
    if (cancel) EXPECT_OK(kvmem_transfer_cancel(transfer, ERR));
    kvmem_transfer_destroy(transfer);
    kvmem_layout_destroy(layouts[0]);
    kvmem_layout_destroy(layouts[1]);
    const kvmem_status status = next_completion(world->queue).status;
    CHECK(status == KVMEM_STATUS_OK || (cancel && status == KVMEM_STATUS_CANCELLED));
    expect_unused(world);
}

static void check_every_end(bool from_file, bool to_file, uint32_t method) {
    static const uint64_t flags[] = {0, KVMEM_TRANSFER_BY_LAYER, KV_VERIFY, KV_CHECKSUM};
    CLEANUP(world_close) world world = open_world(from_file, to_file);
    for (size_t i = 0; i < RUNS * 6; i++)
        run_once(&world, method, flags[i % NUM(flags)], i / NUM(flags) % 2 == 1);
}

TEST_CALL(of_copies_in_memory, check_every_end(false, false, KVMEM_METHOD_MEMCPY))
TEST_CALL(of_reads_by_threads, check_every_end(true, false, KVMEM_METHOD_PREAD))
TEST_CALL(of_writes_by_threads, check_every_end(false, true, KVMEM_METHOD_PREAD))

TEST(of_reads_by_io_uring) {
    if (can_test_io_uring()) check_every_end(true, false, KVMEM_METHOD_URING);
}

TEST(of_writes_by_io_uring) {
    if (can_test_io_uring()) check_every_end(false, true, KVMEM_METHOD_URING);
}

static void check_checksums_end(bool from_file) {
    uint32_t blocks[BLOCKS];
    uint32_t checksums[BLOCKS];
    CLEANUP(world_close) world world = open_world(from_file, false);
    for (uint32_t i = 0; i < BLOCKS; i++) blocks[i] = i;
    for (int i = 0; i < RUNS; i++) {
        kvmem_layout *layout = regions_lay_out(&world.config, &world.regions[0], 1, NULL);
        EXPECT_OK(kvmem_layout_checksum(layout, blocks, BLOCKS, KVMEM_TIMEOUT_FOREVER, checksums, ERR));
        kvmem_layout_destroy(layout);
        expect_unused(&world);
    }
}

TEST_CALL(of_checksums_of_memory, check_checksums_end(false))
TEST_CALL(of_checksums_of_a_file, check_checksums_end(true))
