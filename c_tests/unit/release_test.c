// SPDX-License-Identifier: Apache-2.0
// Release callbacks that call kvmem. Everything is destroyed during a transfer, so its thread is the last
// user of the memory; the callback needs that thread too.
#include "harness.h"

#define BLOCKS 512
#define RUNS 20

static kvmem_block_pair pairs[BLOCKS];
static const kv_move all_blocks = {pairs, NUM(pairs), 0, 0, 3};

/* Two sides of a transfer: memory of the test, and a temporary file or other memory. */
typedef struct move_sides {
    kvmem_layout *source;
    kvmem_layout *destination;
    uint32_t path;
} move_sides;

/* What the callback does, and how often it was called. */
typedef struct on_release {
    move_sides sides; /* not those of the transfer in flight */
    atomic_int calls;
    atomic_int failures;
    pthread_t thread;
} on_release;

/* Creates a transfer, waits for it and destroys it. A failed check here would end the case on the wrong
   thread. */
static kvmem_status move_all(const move_sides *sides) {
    kv_job options = WITH(kv_job_of(&all_blocks), it.transfer.method = sides->path);
    OWNED(kvmem_transfer) transfer = NULL;
    kvmem_status status = kv_prepare(sides->source, sides->destination, &options, &transfer, NULL);
    THEN(status, kvmem_transfer_submit(transfer, NULL, NULL));
    THEN(status, kvmem_transfer_wait(transfer, KVMEM_TIMEOUT_FOREVER, NULL));
    return status;
}

static void move_on_release(void *user_data) {
    on_release *mine = user_data;
    mine->thread = pthread_self();
    mine->failures += move_all(&mine->sides) != KVMEM_STATUS_OK;
    mine->calls++;
}

static kvmem_layout_config config_of_many(void) {
    kvmem_layout_config config = WITH(kv_aligned_config(&kv_kinds[0]), it.num_blocks = BLOCKS);
    for (uint32_t i = 0; i < BLOCKS; i++) pairs[i] = (kvmem_block_pair){i, i};
    return config;
}

static kvmem_layout *adopted_layout(const kvmem_layout_config *config, void *memory, on_release *release) {
    OWN(kvmem_region, region, kvmem_region_adopt_host,
        REF(OPTIONS(kvmem_adopt_options, it.address = memory, it.size = kv_region_size(config),
                    it.release = release != NULL ? move_on_release : NULL, it.user_data = release)));
    return regions_lay_out(config, &region, 1, NULL);
}

static void *page_aligned(uint64_t size) {
    void *memory = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    CHECK(memory != NULL);
    memset(memory, 1, size);
    return memory;
}

/* Submits a transfer from memory with the callback, and destroys all of its handles. The gate may be NULL. */
static void destroy_in_flight(const kvmem_layout_config *config, void *memory, kvmem_layout *destination,
                              on_release *release, void *gate) {
    OWNED(kvmem_layout) source = adopted_layout(config, memory, release);
    kv_job options = WITH(kv_job_of(&all_blocks), it.transfer.method = release->sides.path);
    OWN(kvmem_transfer, transfer, kv_prepare, source, destination, &options);
    if (gate != NULL) gate_close(gate, 4096);
    EXPECT_OK(kvmem_transfer_submit(transfer, NULL, ERR));
    kvmem_layout_destroy(destination);
}

static void a_callback_may_move_blocks(uint32_t path) {
    const kvmem_layout_config config = config_of_many();
    void *memory[2] = {page_aligned(kv_region_size(&config)), page_aligned(kv_region_size(&config))};
    static on_release release;
    release.calls = 0;
    release.sides.source = adopted_layout(&config, memory[1], NULL);
    release.sides.destination = temporary_disk_layout(&config, NULL, 0);
    release.sides.path = path;
    for (int i = 0; i < RUNS; i++)
        destroy_in_flight(&config, memory[0], temporary_disk_layout(&config, NULL, 0), &release,
                          NULL);
    while (release.calls < RUNS) { /* only the deadline of the process limits this */
        finish_releases();
    }
    CHECK_EQ(release.failures, 0);
    kvmem_layout_destroy(release.sides.source);
    kvmem_layout_destroy(release.sides.destination);
    free(memory[0]);
    free(memory[1]);
}

TEST(on_io_uring) {
    if (can_test_io_uring()) a_callback_may_move_blocks(KVMEM_METHOD_URING);
}

TEST_CALL(on_threads_that_write_files, a_callback_may_move_blocks(KVMEM_METHOD_PREAD))

/* The copy waits at the gate until its handles are destroyed. The callback's copies need the same threads. */
TEST(on_threads_that_copy) {
    const kvmem_layout_config config = config_of_many();
    void *memory[4];
    for (size_t i = 0; i < NUM(memory); i++) memory[i] = page_aligned(kv_region_size(&config));
    static on_release release;
    release.sides.source = adopted_layout(&config, memory[2], NULL);
    release.sides.destination = adopted_layout(&config, memory[3], NULL);
    destroy_in_flight(&config, memory[0], adopted_layout(&config, memory[1], NULL), &release, memory[0]);
    gate_await();
    CHECK_EQ(release.calls, 0); /* a transfer in flight keeps its memory */
    gate_open();
    while (release.calls == 0) finish_releases();
    CHECK_EQ(release.failures, 0);
    kvmem_layout_destroy(release.sides.source);
    kvmem_layout_destroy(release.sides.destination);
    for (size_t i = 0; i < NUM(memory); i++) free(memory[i]);
}

/* Even if it can be called at once: the destroying thread may hold locks of the engine. */
TEST(the_destroying_thread_never_calls_it) {
    const kvmem_layout_config config = config_of_many();
    CLEANUP(test_free) void *memory = page_aligned(kv_region_size(&config));
    static on_release release;
    release.sides.source = adopted_layout(&config, memory, NULL);
    release.sides.destination = temporary_disk_layout(&config, NULL, 0);
    kvmem_layout_destroy(adopted_layout(&config, memory, &release));
    finish_releases();
    CHECK_EQ(release.calls, 1);
    CHECK_EQ(release.failures, 0);
    CHECK(!pthread_equal(release.thread, pthread_self()));
    kvmem_layout_destroy(release.sides.source);
    kvmem_layout_destroy(release.sides.destination);
}
