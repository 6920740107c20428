// SPDX-License-Identifier: Apache-2.0
// Two threads grow and shrink the same elastic memory concurrently, one to all of it and one to none. Calls
// are atomic: afterwards all of the memory is committed, or none.
#include "elastic_side.h"
#include "caller_context.h"

#include <pthread.h>

#define BLOCKS 64
#define TRIALS 200

/* A call of one of two threads, and what it returned. */
typedef struct step {
    kvmem_status (*run)(const struct step *step);
    kvmem_layout *layout;
    kvmem_region *region;
    uint64_t blocks;
    pthread_barrier_t *start;
    kvmem_status status;
} step;

static kvmem_status resize(const step *step) { return kvmem_layout_resize(step->layout, step->blocks, NULL); }

static uint64_t size_of(kvmem_region *region) {
    kvmem_region_info info;
    return kvmem_region_get_info(region, &info, NULL) == KVMEM_STATUS_OK ? info.size : 0;
}

static kvmem_status commit(const step *step) {
    return kvmem_region_commit(step->region, 0, size_of(step->region), NULL);
}

static kvmem_status decommit(const step *step) {
    return kvmem_region_decommit(step->region, 0, size_of(step->region), NULL);
}

static void *run(void *argument) {
    step *step = argument;
    pthread_barrier_wait(step->start);
    step->status = step->run(step);
    return NULL;
}

static void run_concurrently(step *first, step *second) {
    pthread_barrier_t start;
    pthread_t thread;
    CHECK_EQ(pthread_barrier_init(&start, NULL, 2), 0);
    first->start = second->start = &start;
    CHECK_EQ(pthread_create(&thread, NULL, run, first), 0);
    run(second);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(pthread_barrier_destroy(&start), 0);
}

/* Checks that all or no extents are committed. */
static void check_all_or_none(const kvmem_region *region, int trial) {
    const kvmem_region_info info = region_info(region);
    if (info.num_committed != 0 && info.num_committed != info.num_extents)
        FAIL("trial %d: %llu of %llu extents are committed", trial, (unsigned long long)info.num_committed,
             (unsigned long long)info.num_extents);
}

/* Regions of a layer-separate layout are views, the region of a fully contiguous one is the whole elastic
   region. */
static kvmem_layout *layout_of(const kv_kind *kind) {
    kvmem_layout_config config = WITH(kv_config(kind), it.num_blocks = BLOCKS, it.num_layers = 2,
                                      it.outer_dim = 2, it.page_size = 16);
    config.inner_dim = 16384; /* a few extents */
    config.dtype_width = 2;
    config.alignment = 0;
    config.num_heads = 0;
    return elastic_layout(&config, 0, NULL);
}

static kvmem_region *region_of(const kvmem_layout *layout) {
    return MADE(kvmem_region, kvmem_layout_get_region, layout, 0);
}

TEST(a_layout_is_resized_by_two_threads) {
    for (size_t i = 0; i < KV_NUM_KINDS; i++) {
        OWNED(kvmem_layout) layout = layout_of(&kv_kinds[i]);
        OWNED(kvmem_region) region = region_of(layout);
        for (int trial = 0; trial < TRIALS; trial++) {
            /* One thread commits the other half, one decommits this half. */
            EXPECT_OK(kvmem_layout_resize(layout, BLOCKS / 2, ERR));
            step grow = {.run = resize, .layout = layout, .blocks = BLOCKS};
            step shrink = {.run = resize, .layout = layout, .blocks = 0};
            run_concurrently(&grow, &shrink);
            CHECK_EQ(grow.status, KVMEM_STATUS_OK);
            CHECK_EQ(shrink.status, KVMEM_STATUS_OK);
            check_all_or_none(region, trial);
        }
    }
}

/* Decommitting memory that is not committed fails without effect. */
static void check_decommitted(const step *step) {
    CHECK(step->status == KVMEM_STATUS_OK || step->status == KVMEM_STATUS_INVALID_STATE);
}

TEST(a_region_is_committed_and_decommitted_by_two_threads) {
    OWNED(kvmem_region) region = region_create_elastic(16 * MIB, 2 * MIB, 0);
    for (int trial = 0; trial < TRIALS; trial++) {
        step grow = {.run = commit, .region = region}, shrink = {.run = decommit, .region = region};
        run_concurrently(&grow, &shrink);
        CHECK_EQ(grow.status, KVMEM_STATUS_OK);
        check_decommitted(&shrink);
        check_all_or_none(region, trial);
    }
}

/* The region of a fully contiguous layout can be committed directly. */
TEST(a_layout_is_resized_while_its_region_is_committed) {
    OWNED(kvmem_layout) layout = layout_of(&kv_kinds[0]);
    OWNED(kvmem_region) region = region_of(layout);
    for (int trial = 0; trial < TRIALS; trial++) {
        EXPECT_OK(kvmem_layout_resize(layout, BLOCKS / 2, ERR));
        step shrink =
            {.run = resize, .layout = layout, .blocks = 0}, grow = {.run = commit, .region = region};
        run_concurrently(&shrink, &grow);
        CHECK_EQ(shrink.status, KVMEM_STATUS_OK);
        CHECK_EQ(grow.status, KVMEM_STATUS_OK);
        check_all_or_none(region, trial);
        step fill =
            {.run = resize, .layout = layout, .blocks = BLOCKS}, take = {.run = decommit, .region = region};
        run_concurrently(&fill, &take);
        CHECK_EQ(fill.status, KVMEM_STATUS_OK);
        check_decommitted(&take);
        check_all_or_none(region, trial);
    }
}
