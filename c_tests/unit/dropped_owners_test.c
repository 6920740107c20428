// SPDX-License-Identifier: Apache-2.0
// Threads that use transfers in any order while all that the transfers hold is destroyed. Memory is not
// accessible after its release, so a late access ends the test.
#include "harness.h"
#include "threads.h"

#include <sys/mman.h>

enum { BLOCKS = 64, LAYERS = 4, THREADS = 6, TRANSFERS = 4, CALLS = 400, ROUNDS = 12 };

typedef struct owned_memory {
    void *bytes;
    uint64_t size;
    atomic_int releases;
} owned_memory;

static kvmem_transfer *transfers[TRANSFERS];
static atomic_uint num_submitted;

static void protect_released(void *user_data) {
    owned_memory *released = user_data;
    if (mprotect(released->bytes, released->size, PROT_NONE) == 0) released->releases++;
}

static kvmem_layout *layout_over(owned_memory *memory, const kvmem_layout_config *config) {
    memory->size = (kv_region_size(config) + 4095) / 4096 * 4096;
    memory->releases = 0;
    memory->bytes = mmap(NULL, memory->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory->bytes != MAP_FAILED);
    OWN(kvmem_region, region, kvmem_region_adopt_host,
        REF(OPTIONS(kvmem_adopt_options, it.address = memory->bytes, it.size = memory->size,
                    it.release = protect_released, it.user_data = memory)));
    return regions_lay_out(config, &region, 1, NULL);
}

static void submit_some(kvmem_transfer *transfer, unsigned *seed) {
    kvmem_block_pair pairs[BLOCKS];
    const size_t count = 1 + rand_r(seed) % BLOCKS, shift = rand_r(seed) % BLOCKS;
    for (uint32_t i = 0; i < count; i++) pairs[i] = (kvmem_block_pair){(i * 7 + shift) % BLOCKS, (i + shift) % BLOCKS};
    const kvmem_submit_options options = OPTIONS(
        kvmem_submit_options, it.pairs = pairs, it.num_pairs = count, it.user_data = 1,
        it.flags = rand_r(seed) % 3 == 0 ? KVMEM_SUBMIT_VERIFY : 0,
        it.run_timeout_ns = rand_r(seed) % 4 == 0 ? 1000 * (uint64_t)(rand_r(seed) % 500) : 0);
    const kvmem_submit_options *given = rand_r(seed) % 4 == 0 ? NULL : &options;
    num_submitted += kvmem_transfer_submit(transfer, given, NULL) == KVMEM_STATUS_OK;
}

/* Calls that the documentation permits on any thread at any time. Their results depend on the others. */
static void *call_in_any_order(void *argument) {
    unsigned seed = *(unsigned *)argument;
    for (int i = 0; i < CALLS; i++) {
        kvmem_transfer *transfer = transfers[rand_r(&seed) % TRANSFERS];
        OWNED(kvmem_blob) text = NULL;
        kvmem_transfer_info info;
        uint64_t indices[BLOCKS];
        size_t count;
        switch (rand_r(&seed) % 10) {
        case 0: case 1: case 2: submit_some(transfer, &seed); break;
        case 3: kvmem_transfer_poll(transfer, NULL); break;
        case 4: kvmem_transfer_wait(transfer, 1000 * (uint64_t)(rand_r(&seed) % 300), NULL); break;
        case 5: kvmem_transfer_cancel(transfer, NULL); break;
        case 6: kvmem_transfer_wait_layers(transfer, 1, 100000, NULL); break;
        case 7: kvmem_transfer_get_mismatches(transfer, indices, BLOCKS, &count, NULL); break;
        case 8: kvmem_transfer_get_info(transfer, &info, NULL); break;
        default: kvmem_transfer_explain(transfer, &text, NULL); break;
        }
    }
    return NULL;
}

static void drop_during_calls(unsigned round) {
    const kvmem_layout_config config = WITH(kv_aligned_config(&kv_kinds[0]), it.num_blocks = BLOCKS,
                                            it.num_layers = LAYERS);
    owned_memory from, to;
    kvmem_layout *source = layout_over(&from, &config), *destination = layout_over(&to, &config);
    kvmem_layout *file = temporary_disk_layout(&config, NULL, round % 2 == 0 ? KVMEM_DISK_BUFFERED : 0);
    OWN(kvmem_queue, queue, kvmem_queue_create);
    kvmem_layout *const sides[TRANSFERS][2] = {
        {source, destination}, {source, destination}, {source, file}, {file, destination}};
    for (size_t i = 0; i < TRANSFERS; i++) {
        const kvmem_transfer_options options = OPTIONS(
            kvmem_transfer_options, it.queue = queue,
            it.flags = KVMEM_TRANSFER_REPORT_RELEASE | (i == 1 ? KVMEM_TRANSFER_BY_LAYER : 0),
            it.layers_per_completion = i == 1);
        EXPECT_OK(kvmem_transfer_create(sides[i][0], sides[i][1], &options, &transfers[i], ERR));
    }
    unsigned seeds[THREADS];
    for (unsigned i = 0; i < THREADS; i++) seeds[i] = round * THREADS + i;
    threads started;
    num_submitted = 0;
    threads_start(&started, THREADS, call_in_any_order, seeds, sizeof(*seeds));
    AWAIT(num_submitted > round);
    kvmem_layout_destroy(source);
    kvmem_layout_destroy(destination);
    kvmem_layout_destroy(file);
    kvmem_queue_destroy(queue);
    queue = NULL;
    threads_join(&started);
    CHECK_EQ(from.releases + to.releases, 0); /* the transfers hold them */
    for (size_t i = 0; i < TRANSFERS; i++) {
        if (round % 3 == 0) kvmem_transfer_submit(transfers[i], NULL, NULL);
        kvmem_transfer_destroy(transfers[i]);
    }
    AWAIT(from.releases == 1 && to.releases == 1);
    CHECK_EQ(munmap(from.bytes, from.size), 0);
    CHECK_EQ(munmap(to.bytes, to.size), 0);
}

TEST(memory_is_released_once_and_not_before_the_last_run_whatever_threads_call) {
    for (unsigned round = 0; round < ROUNDS; round++) drop_during_calls(round);
}

/* No list is read with a count that no memory can have. */
TEST(counts_that_no_memory_has_are_refused) {
    static const size_t counts[] = {SIZE_MAX, SIZE_MAX / 2 + 1, SIZE_MAX / sizeof(kvmem_block_pair) + 2};
    static const kvmem_block_pair pair = {0, 0};
    static const uint32_t block = 0;
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    KV_SIDES(source, destination, config, config);
    OWNED(kvmem_transfer) transfer = NULL;
    EXPECT_OK(kvmem_transfer_create(source.layout, destination.layout, NULL, &transfer, ERR));
    for (size_t i = 0; i < NUM(counts); i++) {
        const kvmem_block_table table = {.blocks = &block, .num_blocks = counts[i]};
        const kvmem_submit_options all[] = {
            OPTIONS(kvmem_submit_options, it.pairs = &pair, it.num_pairs = counts[i]),
            OPTIONS(kvmem_submit_options, it.source_table = &table, it.destination_table = &table,
                    it.num_tokens = UINT64_MAX),
            OPTIONS(kvmem_submit_options, it.pairs = &pair, it.num_pairs = 1, it.notification = &pair,
                    it.notification_size = counts[i]),
        };
        for (size_t k = 0; k < NUM(all); k++) CHECK(kvmem_transfer_submit(transfer, &all[k], NULL) < 0);
        const kvmem_layout_options options = OPTIONS(
            kvmem_layout_options, it.config = &config, it.source = KVMEM_LAYOUT_REGIONS,
            it.regions = source.regions, it.count = counts[i]);
        kvmem_layout *layout = NULL;
        uint32_t checksum;
        CHECK(kvmem_layout_build(&options, &layout, NULL) < 0 && layout == NULL);
        CHECK(kvmem_layout_checksum(source.layout, &block, counts[i], 0, &checksum, NULL) < 0);
    }
    kv_side_check(&source);
    kv_side_check(&destination);
}
