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
