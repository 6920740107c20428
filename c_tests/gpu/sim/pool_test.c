// SPDX-License-Identifier: Apache-2.0
// An allocation from a pool that waits for work: the driver wakes it.
#include "busy.h"
#include "control.h"
#include "threads.h"
#include "caller_context.h"

#define EXTENT (4 * MIB)

typedef struct waiting {
    CUstream stream;
    void *block;
} waiting;

static void *allocate_all(void *argument) {
    waiting *waiting = argument;
    waiting->block = kvmem_pool_malloc(2 * EXTENT, 0, waiting->stream);
    return NULL;
}

/* The memory of freed blocks is in use until their stream has passed the free: only then is it one range. */
TEST(work_that_ends_wakes_an_allocation) {
    SIM(sim_reset());
    OPENED(stream, stream, 0);
    OWNED(kvmem_region) region = region_create_elastic(2 * EXTENT, EXTENT, 0);
    EXPECT_OK(kvmem_pool_set_current(0, region, ERR));
    void *const first = kvmem_pool_malloc(EXTENT, 0, stream.handle);
    void *const second = kvmem_pool_malloc(EXTENT, 0, stream.handle);
    CHECK(first != NULL && second != NULL);
    busy busy = {0};
    busy_begin(&busy, BUSY_ONE);
    kvmem_pool_free(first, 0, 0, busy.stream.handle);
    kvmem_pool_free(second, 0, 0, busy.stream.handle);
    const uint64_t asked = SIM(sim_calls("cuLaunchHostFunc"));
    waiting waiting = {.stream = stream.handle};
    threads threads = {0};
    threads_start(&threads, 1, allocate_all, &waiting, sizeof(waiting));
    AWAIT(SIM(sim_calls("cuLaunchHostFunc")) == asked + 1);
    busy_end(&busy);
    threads_join(&threads);
    CHECK(waiting.block == first);
    kvmem_pool_free(waiting.block, 0, 0, stream.handle);
    EXPECT_OK(kvmem_pool_set_current(0, NULL, ERR));
}

typedef struct allocating {
    CUstream stream;
    uint64_t size;
    void *block;
} allocating;

static void *allocate_one(void *argument) {
    allocating *const allocating = argument;
    allocating->block = kvmem_pool_malloc(allocating->size, 0, allocating->stream);
    return NULL;
}

/* Its memory is in use, and no call waits for the device to find out when it no longer is. */
TEST(a_pool_that_is_set_again_beside_work_is_no_memory_that_waits_for_its_end) {
    SIM(sim_reset());
    OPENED(stream, stream, 0);
    OWNED(kvmem_region) region = region_create_elastic(2 * EXTENT, EXTENT, 0);
    EXPECT_OK(kvmem_pool_set_current(0, region, ERR));
    busy busy = {0};
    busy_begin(&busy, BUSY_ONE);
    EXPECT_OK(kvmem_pool_set_current(0, region, ERR));
    void *const block = kvmem_pool_malloc(EXTENT, 0, stream.handle);
    EXPECT_OK(kvmem_pool_set_current(0, region, ERR));
    EXPECT_OK(kvmem_pool_set_current(0, NULL, ERR));
    EXPECT_OK(kvmem_pool_set_current(0, region, ERR));
    GET(kvmem_cuda_device_info, info, kvmem_cuda_get_device_info, 0);
    CHECK_EQ(info.kept_objects, 0);
    busy_end(&busy);
    kvmem_pool_free(block, 0, 0, stream.handle);
    EXPECT_OK(kvmem_pool_set_current(0, NULL, ERR));
}

static uint64_t reservations(void) {
    sim_counts counts;
    SIM(sim_live(&counts));
    return counts.reservations;
}

/* The last block is freed while another one, which gets no memory, is in the list. */
TEST(a_block_that_gets_no_memory_keeps_no_pool) {
    SIM(sim_reset());
    OPENED(stream, stream, 0);
    AWAIT(reservations() == 0); /* those of other cases are freed */
    kvmem_region *const region = region_create_elastic(4 * EXTENT, EXTENT, 0);
    EXPECT_OK(kvmem_pool_set_current(0, region, ERR));
    void *const first = kvmem_pool_malloc(EXTENT, 0, stream.handle);
    allocating allocating = {.stream = stream.handle, .size = 2 * EXTENT};
    threads threads = {0};
    SIM(sim_fail("cuMemCreate", SIM_EVERY_CALL, CUDA_ERROR_OUT_OF_MEMORY));
    SIM(sim_hold_call("cuMemCreate"));
    threads_start(&threads, 1, allocate_one, &allocating, sizeof(allocating));
    AWAIT(SIM(sim_held_calls()) == 1);
    kvmem_pool_free(first, 0, 0, stream.handle);
    SIM(sim_go_calls());
    threads_join(&threads);
    CHECK(allocating.block == NULL);
    SIM(sim_cancel_failures());
    EXPECT_OK(kvmem_pool_set_current(0, NULL, ERR));
    CALL(kvmem_region_destroy(region));
    AWAIT(reservations() == 0);
}

static void *allocate_extent(void *argument) {
    waiting *waiting = argument;
    waiting->block = kvmem_pool_malloc(EXTENT, 0, waiting->stream);
    return NULL;
}

static void *free_second(void *argument) {
    waiting *waiting = argument;
    kvmem_pool_free(waiting->block, 0, 0, waiting->stream);
    waiting->block = NULL;
    return NULL;
}

/* The driver may block any call while the GPU works. */
TEST(a_free_does_not_wait_for_an_allocation_that_the_driver_holds_up) {
    SIM(sim_reset());
    OPENED(stream, stream, 0);
    OWNED(kvmem_region) region = region_create_elastic(2 * EXTENT, EXTENT, 0);
    EXPECT_OK(kvmem_pool_set_current(0, region, ERR));
    void *const first = kvmem_pool_malloc(EXTENT, 0, stream.handle);
    waiting freed = {.stream = stream.handle, .block = kvmem_pool_malloc(EXTENT, 0, stream.handle)};
    kvmem_pool_free(first, 0, 0, stream.handle);
    waiting allocated = {.stream = stream.handle};
    threads allocating = {0}, freeing = {0};
    SIM(sim_hold_call("cuEventQuery"));
    threads_start(&allocating, 1, allocate_extent, &allocated, sizeof(allocated));
    AWAIT(SIM(sim_held_calls()) == 1);
    threads_start(&freeing, 1, free_second, &freed, sizeof(freed));
    threads_join(&freeing);
    CHECK(freed.block == NULL);
    CHECK_EQ(region_info(region).size, 2 * EXTENT);
    SIM(sim_go_calls());
    threads_join(&allocating);
    CHECK(allocated.block == first);
    kvmem_pool_free(allocated.block, 0, 0, stream.handle);
    EXPECT_OK(kvmem_pool_set_current(0, NULL, ERR));
}

/* Without a report the end is found all the same. */
TEST(an_allocation_finds_the_end_of_work_if_the_driver_does_not_report_it) {
    SIM(sim_reset());
    OPENED(stream, stream, 0);
    OWNED(kvmem_region) region = region_create_elastic(2 * EXTENT, EXTENT, 0);
    EXPECT_OK(kvmem_pool_set_current(0, region, ERR));
    void *const first = kvmem_pool_malloc(EXTENT, 0, stream.handle);
    void *const second = kvmem_pool_malloc(EXTENT, 0, stream.handle);
    busy busy = {0};
    busy_begin(&busy, BUSY_ONE);
    kvmem_pool_free(first, 0, 0, busy.stream.handle);
    kvmem_pool_free(second, 0, 0, busy.stream.handle);
    SIM(sim_fail("cuLaunchHostFunc", SIM_EVERY_CALL, CUDA_ERROR_NOT_SUPPORTED));
    waiting waiting = {.stream = stream.handle};
    threads threads = {0};
    threads_start(&threads, 1, allocate_all, &waiting, sizeof(waiting));
    AWAIT(SIM(sim_calls("cuLaunchHostFunc")) > 0);
    busy_end(&busy);
    threads_join(&threads);
    CHECK(waiting.block == first);
    kvmem_pool_free(waiting.block, 0, 0, stream.handle);
    EXPECT_OK(kvmem_pool_set_current(0, NULL, ERR));
    SIM(sim_cancel_failures());
}
