// SPDX-License-Identifier: Apache-2.0
// The progress callback of pinned memory: called once per chunk, can cancel, and a cancelled allocation leaks
// nothing.
#include "caller_context.h"
#include "usage.h"

#include <pthread.h>

/* The calls of the callback, and the call that cancels. The callback must not fail the case, because it
   returns to kvmem. */
typedef struct journal {
    uint64_t chunk;
    uint64_t total;
    uint64_t calls;
    uint64_t unexpected; /* calls with wrong arguments, thread or context */
    uint64_t cancel_at;  /* the number of the call that cancels; 0 for none */
    int32_t result;      /* its result */
    pthread_t thread;
    CUcontext context;
} journal;

static int32_t note(uint64_t done, uint64_t total, void *user_data) {
    journal *journal = user_data;
    journal->calls++;
    const uint64_t chunks = journal->calls * journal->chunk;
    const bool expected = total == journal->total && done == (chunks < total ? chunks : total) &&
                          pthread_equal(pthread_self(), journal->thread) &&
                          current_context() == journal->context;
    journal->unexpected += !expected;
    return journal->calls == journal->cancel_at ? journal->result : 0;
}

static kvmem_pinned_options options_with(journal *journal, uint64_t size, uint64_t chunk) {
    *journal = (struct journal){.chunk = chunk, .total = size, .result = 1};
    journal->thread = pthread_self();
    journal->context = current_context();
    return OPTIONS(kvmem_pinned_options, it.size = size, it.chunk_size = chunk, it.progress = note,
                   it.user_data = journal);
}

TEST(it_is_called_once_per_chunk) {
    static const struct {
        uint64_t size, chunk, calls;
    } shapes[] = {
        {MIB, 4096, 256}, {MIB, 64 * 1024, 16}, {MIB + 1, 64 * 1024, 17}, {5000, 4096, 2},
        {4096, 4096, 1},  {1, 4096, 1},         {MIB, MIB, 1},            {MIB, 64 * MIB, 1},
    };
    for (size_t i = 0; i < NUM(shapes); i++) {
        journal journal;
        const kvmem_pinned_options options = options_with(&journal, shapes[i].size, shapes[i].chunk);
        GET(kvmem_region *, region, kvmem_region_create_pinned, &options);
        CHECK_EQ(journal.calls, shapes[i].calls);
        CHECK_EQ(journal.unexpected, 0);
        CALL(kvmem_region_destroy(region));
        CHECK_EQ(journal.calls, shapes[i].calls);
    }
}

static void cancel(uint64_t at, int32_t result) {
    journal journal;
    kvmem_pinned_options options = options_with(&journal, 256 * MIB, 32 * MIB);
    journal.cancel_at = at;
    journal.result = result;
    char done[32];
    snprintf(done, sizeof(done), "%llu", (unsigned long long)(at * 32 * MIB));
    REFUSE(KVMEM_STATUS_CANCELLED, done, kvmem_region_create_pinned, &options);
    CHECK_EQ(journal.calls, at);
    CHECK_EQ(journal.unexpected, 0);
}

TEST(any_result_except_0_cancels) {
    static const int32_t results[] = {1, -1, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < NUM(results); i++) cancel(1, results[i]);
}

TEST(a_cancelled_allocation_leaks_nothing) {
    retain_device(0); /* so that memory of the context is not counted */
    cancel(1, 1);
    const uint64_t space = address_space();
    const size_t files = count_open_files();
    for (uint64_t at = 1; at <= 8; at++) cancel(at, 1);
    CHECK(address_space() < space + 256 * MIB);
    CHECK_EQ(count_open_files(), files);
    release_device(0);
}

static int32_t create_a_region(uint64_t done, uint64_t total, void *user_data) {
    (void)done;
    (void)total;
    kvmem_pinned_options options = OPTIONS(kvmem_pinned_options, it.size = 4096);
    kvmem_region *region = NULL;
    const kvmem_status status = kvmem_region_create_pinned(&options, &region, NULL);
    kvmem_region_destroy(region);
    *(int *)user_data += status == KVMEM_STATUS_OK;
    return 0;
}

TEST(the_callback_may_call_kvmem) {
    int successes = 0;
    kvmem_pinned_options options = OPTIONS(kvmem_pinned_options, it.size = 65536, it.chunk_size = 16384,
                                           it.progress = create_a_region, it.user_data = &successes);
    OWN(kvmem_region, region, kvmem_region_create_pinned, &options);
    CHECK_EQ(successes, 4);
}

TEST(building_a_layout_does_not_call_it) {
    journal journal;
    kvmem_pinned_options options = options_with(&journal, 0, 4096);
    kvmem_layout_config config = kv_config(&kv_kinds[0]);
    config.num_blocks = 256; /* more than a chunk */
    kvmem_layout_options layout_options = OPTIONS(kvmem_layout_options, it.config = &config,
                                                  it.source = KVMEM_LAYOUT_ALLOCATE, it.pinned = &options);
    OWN(kvmem_layout, layout, kvmem_layout_build, &layout_options);
    CHECK_EQ(journal.calls, 0);
}
