// SPDX-License-Identifier: Apache-2.0
// Memory for PyTorch's allocator: blocks of a pool, in the order of streams, that keep their addresses while the pool
// sleeps.
#include "busy.h"
#include "caller_context.h"
#include "patience.h"
#include "threads.h"

#define EXTENT (4 * MIB)

/* An elastic region that is the pool of device 0. */
typedef struct pool {
    kvmem_region *region;
    uint64_t address;
    stream stream;
} pool;

static void pool_open(pool *pool, uint64_t extents) {
    stream_open(&pool->stream, 0);
    pool->region = region_create_elastic(extents * EXTENT, EXTENT, 0);
    pool->address = region_info(pool->region).address;
    EXPECT_OK(kvmem_pool_set_current(0, pool->region, ERR));
}

static void pool_close(pool *pool) {
    EXPECT_OK(kvmem_pool_set_current(0, NULL, ERR));
    CALL(kvmem_region_destroy(pool->region));
    stream_close(&pool->stream);
}

/* Returns the offset of a new block in the pool. */
static uint64_t allocate_on(const pool *pool, uint64_t size, CUstream stream) {
    void *const block = kvmem_pool_malloc(size, 0, stream);
    CHECK(block != NULL);
    return (uint64_t)(uintptr_t)block - pool->address;
}

static uint64_t allocate(const pool *pool, uint64_t size) { return allocate_on(pool, size, pool->stream.handle); }

static void free_on(const pool *pool, uint64_t offset, CUstream stream) {
    kvmem_pool_free((void *)(uintptr_t)(pool->address + offset), 0, 0, stream);
}

static void free_block(const pool *pool, uint64_t offset) { free_on(pool, offset, pool->stream.handle); }

static void refuse_allocation(const pool *pool, uint64_t size) {
    CHECK(kvmem_pool_malloc(size, 0, pool->stream.handle) == NULL);
}

static uint64_t committed(const pool *pool) { return region_info(pool->region).num_committed; }

static void fill(const pool *pool, uint64_t offset, int value, uint64_t size) {
    unsigned char *const bytes = test_allocate(size);
    memset(bytes, value, size);
    write_device(0, pool->address + offset, bytes, size);
    free(bytes);
}

static void expect_filled(const pool *pool, uint64_t offset, int value, uint64_t size) {
    unsigned char *const bytes = test_allocate(size);
    memset(bytes, 0, size);
    read_device(0, bytes, pool->address + offset, size);
    CHECK_FILLED(bytes, value, size);
    free(bytes);
}

/* Whether the stream has nothing left to wait for. */
static bool is_done(const stream *stream) {
    enter_device(0);
    const CUresult result = driver_get()->cuStreamQuery(stream->handle);
    leave_device(0);
    CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY);
    return result == CUDA_SUCCESS;
}

TEST(blocks_are_aligned_and_apart_and_commit_what_they_need) {
    OPENED(pool, pool, 4);
    CHECK_EQ(committed(&pool), 0);
    const uint64_t first = allocate(&pool, 1), second = allocate(&pool, 513), third = allocate(&pool, 2 * EXTENT);
    CHECK_EQ(first, 0);
    CHECK_EQ(second, 512);
    CHECK_EQ(third, 1536);
    CHECK_EQ(committed(&pool), 3);
    fill(&pool, first, 1, 512);
    fill(&pool, second, 2, 1024);
    fill(&pool, third, 3, EXTENT);
    expect_filled(&pool, first, 1, 512);
    expect_filled(&pool, second, 2, 1024);
    free_block(&pool, second);
    free_block(&pool, first);
    free_block(&pool, third);
    stream_await(&pool.stream);
    CHECK_EQ(allocate(&pool, 4 * EXTENT), 0); /* all of them were joined */
    refuse_allocation(&pool, 1);
    free_block(&pool, 0);
}

TEST(memory_that_work_may_use_is_reused_after_it) {
    OPENED(pool, pool, 2);
    OPENED(stream, other, 0);
    const uint64_t used = allocate(&pool, EXTENT), idle = allocate(&pool, EXTENT);
    free_block(&pool, idle);
    stream_await(&pool.stream);
    busy busy = {0};
    busy_begin(&busy, BUSY_ONE);
    CHECK_EQ(allocate_on(&pool, EXTENT, other.handle), idle);
    CHECK(is_done(&other)); /* nothing used it */
    free_on(&pool, used, busy.stream.handle);
    CHECK_EQ(allocate_on(&pool, EXTENT / 2, other.handle), used);
    CHECK(!is_done(&other)); /* it waits for the kernel on the other stream */
    CHECK_EQ(allocate_on(&pool, EXTENT / 2, pool.stream.handle), used + EXTENT / 2);
    CHECK(!is_done(&pool.stream)); /* the rest of the range, too */
    busy_end(&busy);
    stream_await(&other);
    free_block(&pool, used);
    free_block(&pool, used + EXTENT / 2);
    free_block(&pool, idle);
}

TEST(a_graph_gets_no_memory_that_work_outside_of_it_uses) {
    OPENED(pool, pool, 2);
    const uint64_t used = allocate(&pool, EXTENT);
    busy busy = {0};
    busy_begin(&busy, BUSY_ONE);
    free_on(&pool, used, busy.stream.handle);
    stream_begin_capture(&pool.stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    const uint64_t captured = allocate(&pool, EXTENT);
    CHECK_EQ(captured, EXTENT);
    free_block(&pool, captured);
    stream_drop_capture(&pool.stream); /* which is still valid */
    busy_end(&busy);
    /* Nothing orders work after a graph that may be launched at any time. */
    CHECK_EQ(allocate(&pool, EXTENT), used);
    refuse_allocation(&pool, EXTENT);
    free_block(&pool, used);
    stream_await(&pool.stream);
    EXPECT_OK(kvmem_pool_commit(pool.region, KVMEM_POOL_NOTHING, ERR));
    CHECK_EQ(allocate(&pool, 2 * EXTENT), 0);
    free_block(&pool, 0);
}

TEST(a_pool_sleeps_and_wakes_with_its_addresses) {
    OPENED(pool, pool, 6);
    const uint64_t first = allocate(&pool, EXTENT), gap = allocate(&pool, 2 * EXTENT),
                   second = allocate(&pool, EXTENT + 512);
    fill(&pool, first, 1, EXTENT);
    free_block(&pool, gap);
    CHECK_EQ(committed(&pool), 5);
    stream_await(&pool.stream);
    EXPECT_OK(kvmem_pool_commit(pool.region, KVMEM_POOL_BLOCKS, ERR));
    CHECK_EQ(committed(&pool), 3); /* without the gap */
    expect_filled(&pool, first, 1, EXTENT);
    EXPECT_OK(kvmem_pool_commit(pool.region, KVMEM_POOL_NOTHING, ERR));
    CHECK_EQ(committed(&pool), 0);
    EXPECT_OK(kvmem_pool_commit(pool.region, KVMEM_POOL_NOTHING, ERR));
    const uint64_t third = allocate(&pool, EXTENT); /* wakes no other block */
    CHECK_EQ(third, gap);
    CHECK_EQ(committed(&pool), 1);
    free_block(&pool, first);
    stream_await(&pool.stream);
    EXPECT_OK(kvmem_pool_commit(pool.region, KVMEM_POOL_BLOCKS, ERR));
    CHECK_EQ(committed(&pool), 3);
    fill(&pool, second, 2, EXTENT + 512);
    expect_filled(&pool, second, 2, EXTENT + 512);
    free_block(&pool, second);
    free_block(&pool, third);
}

TEST(extents_of_a_share_stay) {
    OPENED(pool, pool, 2);
    const uint64_t block = allocate(&pool, EXTENT);
    {
        OWN(kvmem_share, share, kvmem_share_create_region, pool.region, NULL);
        EXPECT(KVMEM_STATUS_BUSY, kvmem_pool_commit(pool.region, KVMEM_POOL_NOTHING, ERR));
        CHECK_EQ(committed(&pool), 1);
    }
    EXPECT_OK(kvmem_pool_commit(pool.region, KVMEM_POOL_NOTHING, ERR));
    free_block(&pool, block);
}

TEST(the_memory_outlives_the_region_until_its_last_block_is_free) {
    OPENED(stream, stream, 0);
    kvmem_region *const region = region_create_elastic(2 * EXTENT, EXTENT, 0);
    EXPECT_OK(kvmem_pool_set_current(0, region, ERR));
    void *const blocks[] = {kvmem_pool_malloc(EXTENT, 0, stream.handle), kvmem_pool_malloc(1, 0, stream.handle)};
    OPENED(pool, other, 1);
    CHECK_EQ(allocate(&other, 1), 0);
    CALL(kvmem_region_destroy(region));
    for (size_t i = 0; i < NUM(blocks); i++) {
        CHECK(blocks[i] != NULL);
        CHECK_EQ(driver_memory_type((uintptr_t)blocks[i]), CU_MEMORYTYPE_DEVICE);
        kvmem_pool_free(blocks[i], 0, 0, stream.handle);
    }
    stream_await(&stream);
    /* Freed at once, or by a thread if the device has other work. */
    for (const uint64_t end = patience_end(); driver_memory_type((uintptr_t)blocks[0]) != 0;)
        patience_wait(end, "the memory is freed");
    free_block(&other, 0);
}

TEST(a_block_is_freed_once) {
    OPENED(pool, pool, 1);
    const uint64_t block = allocate(&pool, 1024);
    free_block(&pool, block + 512);
    free_block(&pool, 2 * EXTENT);
    kvmem_pool_free(NULL, 0, 0, NULL);
    free_block(&pool, block);
    free_block(&pool, block);
    CHECK_EQ(allocate(&pool, 512), 0);
    CHECK_EQ(allocate(&pool, 512), 512);
    free_block(&pool, 0);
    free_block(&pool, 512);
}

TEST(device_memory_can_be_a_pool) {
    OPENED(stream, stream, 0);
    OWN(kvmem_region, region, kvmem_region_create_device, REF(OPTIONS(kvmem_device_options, it.size = MIB)));
    EXPECT_OK(kvmem_pool_set_current(0, region, ERR));
    void *const block = kvmem_pool_malloc(MIB, 0, NULL);
    CHECK_EQ((uintptr_t)block, region_info(region).address);
    CHECK(kvmem_pool_malloc(1, 0, stream.handle) == NULL);
    EXPECT(KVMEM_STATUS_INVALID_ARGUMENT, kvmem_pool_commit(region, KVMEM_POOL_BLOCKS, ERR));
    stream_begin_capture(&stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    kvmem_pool_free(block, MIB, 0, stream.handle);
    stream_drop_capture(&stream);
    CHECK(kvmem_pool_malloc(MIB, 0, stream.handle) == NULL);
    stream_await(&stream);
    EXPECT_OK(kvmem_pool_commit(region, KVMEM_POOL_NOTHING, ERR)); /* after the wait */
    CHECK(kvmem_pool_malloc(MIB, 0, stream.handle) == block);
    kvmem_pool_free(block, MIB, 0, NULL);
    EXPECT_OK(kvmem_pool_set_current(0, NULL, ERR));
    CHECK(kvmem_pool_malloc(1, 0, stream.handle) == NULL);
}

/* Two regions with the same memory would give it to two blocks. */
TEST(memory_is_in_one_pool) {
    OWN(kvmem_region, owner, kvmem_region_create_device, REF(OPTIONS(kvmem_device_options, it.size = MIB)));
    const uint64_t address = region_info(owner).address;
    const kvmem_adopt_options whole =
        OPTIONS(kvmem_adopt_options, it.address = (void *)(uintptr_t)address, it.size = MIB);
    const kvmem_adopt_options half =
        OPTIONS(kvmem_adopt_options, it.address = (void *)(uintptr_t)(address + MIB / 2), it.size = MIB / 2);
    OWN(kvmem_region, first, kvmem_region_adopt_device, &whole, 0);
    OWN(kvmem_region, second, kvmem_region_adopt_device, &half, 0);
    EXPECT_OK(kvmem_pool_set_current(0, first, ERR));
    void *const block = kvmem_pool_malloc(MIB, 0, NULL);
    CHECK_EQ((uintptr_t)block, address);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "another pool has blocks", kvmem_pool_set_current(0, second, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "another pool has blocks", kvmem_pool_set_current(0, owner, ERR));
    EXPECT_OK(kvmem_pool_set_current(0, first, ERR));
    kvmem_pool_free(block, 0, 0, NULL);
    EXPECT_OK(kvmem_pool_set_current(0, second, ERR));
    EXPECT_OK(kvmem_pool_set_current(0, NULL, ERR));
}

TEST(other_memory_is_refused) {
    OWN(kvmem_region, host, kvmem_region_create_system, REF(OPTIONS(kvmem_system_options, it.size = MIB)));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "system region", kvmem_pool_set_current(0, host, ERR));
    OWNED(kvmem_region) region = region_create_elastic(2 * EXTENT, EXTENT, 0);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "located on device 0", kvmem_pool_set_current(1, region, ERR));
    OWN(kvmem_region, view, kvmem_region_create_view, region, 0, EXTENT);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "view", kvmem_pool_set_current(0, view, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "no pool", kvmem_pool_commit(region, KVMEM_POOL_BLOCKS, ERR));
    EXPECT_OK(kvmem_pool_set_current(0, region, ERR));
    EXPECT(KVMEM_STATUS_INVALID_ARGUMENT, kvmem_pool_commit(region, 3, ERR));
    EXPECT_OK(kvmem_pool_set_current(0, NULL, ERR));
    CHECK(kvmem_pool_malloc(1, -1, NULL) == NULL);
    CHECK(kvmem_pool_malloc(SIZE_MAX, 0, NULL) == NULL);
}

/* Two threads allocate, fill, check and free blocks, each on a stream of its own, while a third returns free
   extents. */
typedef struct user {
    const pool *pool;
    int value;
} user;

static void *use_blocks(void *argument) {
    const user *const user = argument;
    OPENED(stream, stream, 0);
    for (int i = 0; i < 200; i++) {
        const uint64_t size = (uint64_t)(1 + i % 7) * 300000;
        const uint64_t block = allocate_on(user->pool, size, stream.handle);
        CU_ON(0, cuMemsetD8Async(user->pool->address + block, (unsigned char)user->value, size, stream.handle));
        unsigned char first = 0, last = 0;
        stream_await(&stream);
        read_device(0, &first, user->pool->address + block, 1);
        read_device(0, &last, user->pool->address + block + size - 1, 1);
        CHECK_EQ(first, user->value);
        CHECK_EQ(last, user->value);
        free_on(user->pool, block, stream.handle);
    }
    return NULL;
}

TEST(threads_use_a_pool_concurrently) {
    OPENED(pool, pool, 8);
    user users[] = {{&pool, 0x11}, {&pool, 0x22}};
    threads threads;
    threads_start(&threads, NUM(users), use_blocks, users, sizeof(users[0]));
    for (int i = 0; i < 50; i++) EXPECT_OK(kvmem_pool_commit(pool.region, KVMEM_POOL_BLOCKS, ERR));
    threads_join(&threads);
}
