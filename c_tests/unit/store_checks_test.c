// SPDX-License-Identifier: Apache-2.0
// Puts and gets of many mebibytes, whose checksums are computed while the blocks move: in any order of slots, with damage, and when a run
// ends early.
#include "harness.h"

#include <string.h>

#define BLOCKS 64 /* of 256 KiB */

static kvmem_layout_config config_of(const kv_kind *kind) { return WITH(kv_large_config(kind), it.alignment = 4096); }

static kvmem_store *open_store(const char *path, uint64_t flags) {
    store_setup setup;
    store_setup_init(&setup, path, REF(config_of(&kv_kinds[0])));
    setup.options.durability = KVMEM_DURABILITY_NONE;
    setup.options.flags = flags;
    return MADE(kvmem_store, kvmem_store_open, &setup.options, PATIENCE);
}

/* Blocks and keys such that neither is in the order of the slots. */
typedef struct scattered {
    unsigned char keys[BLOCKS * STORE_KEY];
    uint32_t blocks[BLOCKS];
    kvmem_store_blocks what;
} scattered;

static void scatter(scattered *all) {
    for (uint32_t i = 0; i < BLOCKS; i++) {
        store_keys(all->keys + i * STORE_KEY, i * 37 % BLOCKS, 1);
        all->blocks[i] = i * 11 % BLOCKS;
    }
    all->what = OPTIONS(kvmem_store_blocks, it.keys = all->keys, it.key_size = STORE_KEY, it.num_keys = BLOCKS,
                        it.blocks = all->blocks, it.num_blocks = BLOCKS);
}

static void put_in_order(kvmem_store *store, const kvmem_layout *source) {
    uint32_t ids[BLOCKS];
    size_t moved = 0;
    for (uint32_t i = 0; i < BLOCKS; i++) ids[i] = i;
    EXPECT_OK(store_put(store, source, 0, ids, BLOCKS, &moved));
    CHECK_EQ(moved, BLOCKS);
}

static void expect_scattered(kv_side *destination, const kv_side *source) {
    kvmem_block_pair pairs[BLOCKS];
    for (uint32_t i = 0; i < BLOCKS; i++) pairs[i] = (kvmem_block_pair){i * 37 % BLOCKS, i * 11 % BLOCKS};
    kv_expect_moved(destination, source, &(kv_move){.pairs = pairs, .num_pairs = BLOCKS, .num_layers = source->config.num_layers});
}

static void get_scattered(kvmem_store *store, const kvmem_layout *destination, const uint64_t *damaged, size_t num_damaged) {
    scattered all;
    scatter(&all);
    kvmem_transfer *transfer = NULL;
    size_t moved = 0;
    EXPECT_OK(kvmem_store_get(store, destination, NULL, &all.what, &transfer, &moved, ERR));
    CHECK_EQ(moved, BLOCKS);
    EXPECT(num_damaged == 0 ? KVMEM_STATUS_OK : KVMEM_STATUS_CORRUPT, kvmem_transfer_wait(transfer, PATIENCE, ERR));
    kv_expect_mismatches(transfer, damaged, num_damaged);
    DESTROYED(kvmem_transfer, transfer);
}

TEST(blocks_are_gotten_in_another_order_than_that_of_their_slots) {
    for (size_t i = 0; i < 2; i++) {
        SCRATCH_FILE(path, "store");
        KV_SIDES(source, destination, config_of(&kv_kinds[0]), config_of(&kv_kinds[i]));
        OWNED(kvmem_store) store = open_store(path, i == 0 ? 0 : KVMEM_DISK_BUFFERED);
        put_in_order(store, source.layout);
        get_scattered(store, destination.layout, NULL, 0);
        expect_scattered(&destination, &source);
        kv_side_check(&destination);
    }
}

TEST(damaged_blocks_are_found_by_their_index_in_the_get) {
    SCRATCH_FILE(path, "store");
    KV_SIDES(source, destination, config_of(&kv_kinds[0]), config_of(&kv_kinds[0]));
    OWNED(kvmem_store) store = open_store(path, 0);
    put_in_order(store, source.layout);
    GET(kvmem_store_info, info, kvmem_store_get_info, store);
    /* The keys of the first put are in the first slots, in their order. */
    store_damage(path, 3 * 37 % BLOCKS, info.slot_size);
    store_damage(path, 60 * 37 % BLOCKS, info.slot_size);
    get_scattered(store, destination.layout, (uint64_t[]){3, 60}, 2);
}

/* The memory is unmapped as soon as the run has ended: a thread that reads it after that ends the test. */
static void put_and_free(kvmem_store *store, int attempt) {
    const kvmem_layout_config config = config_of(&kv_kinds[0]);
    const kvmem_system_options memory = {.struct_size = sizeof(memory)};
    const kvmem_layout_options options = OPTIONS(kvmem_layout_options, it.config = &config, it.source = KVMEM_LAYOUT_ALLOCATE,
                                                 it.system = &memory);
    kvmem_layout *layout = MADE(kvmem_layout, kvmem_layout_build, &options);
    scattered all;
    scatter(&all);
    kvmem_transfer *transfer = NULL;
    size_t moved = 0;
    EXPECT_OK(kvmem_store_put(store, layout, NULL, &all.what, &transfer, &moved, ERR));
    if (attempt % 2 != 0) (void)kvmem_transfer_cancel(transfer, NULL);
    const kvmem_status status = kvmem_transfer_wait(transfer, PATIENCE, ERR);
    CHECK(status == KVMEM_STATUS_OK || (attempt % 2 != 0 && status == KVMEM_STATUS_CANCELLED));
    DESTROYED(kvmem_transfer, transfer);
    DESTROYED(kvmem_layout, layout);
    uint64_t removed = 0;
    EXPECT_OK(kvmem_store_remove(store, all.keys, STORE_KEY, BLOCKS, PATIENCE, &removed, ERR));
    CHECK_EQ(removed, status == KVMEM_STATUS_OK ? BLOCKS : 0);
}

TEST(no_thread_reads_blocks_after_the_end_of_their_put) {
    SCRATCH_FILE(path, "store");
    OWNED(kvmem_store) store = open_store(path, 0);
    for (int i = 0; i < 20; i++) put_and_free(store, i);
}
