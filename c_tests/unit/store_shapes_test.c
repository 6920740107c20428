// SPDX-License-Identifier: Apache-2.0
// Stores with blocks of other sizes, orders, heads and layers in memory than in their slots, compared with a copy element by element.
#include "cache.h"
#include "harness.h"

#include <unistd.h>

#define KEYS 12
static const uint32_t ids[] = {5, 1, 3, 0, 4, 2, 9, 7, 6, 8, 11, 10, 13, 12, 20, 14, 16, 15, 18, 17, 19, 21, 22, 23, 24, 25};

static kvmem_store *open_store(const char *path, const cache_shape *slots, uint64_t flags) {
    store_setup setup;
    store_setup_init(&setup, path, REF(WITH(cache_config(slots), it.alignment = 0)));
    setup.options.flags = flags;
    return MADE(kvmem_store, kvmem_store_open, &setup.options, PATIENCE);
}

/* A put or get of keys from `first` on, to its end. */
static kvmem_status move_keys(kvmem_store *store, bool puts, const kvmem_layout *layout, const kvmem_transfer_options *options,
                              uint64_t first, size_t num_keys, const uint32_t *blocks, size_t num_blocks, size_t *moved) {
    unsigned char keys[KEYS * STORE_KEY];
    store_keys(keys, first, num_keys);
    const kvmem_store_blocks what = OPTIONS(kvmem_store_blocks, it.keys = keys, it.key_size = STORE_KEY, it.num_keys = num_keys,
                                            it.blocks = blocks, it.num_blocks = num_blocks);
    kvmem_transfer *transfer = NULL;
    kvmem_status status = (puts ? kvmem_store_put : kvmem_store_get)(store, layout, options, &what, &transfer, moved, ERR);
    if (status == KVMEM_STATUS_OK && transfer != NULL) status = kvmem_transfer_wait(transfer, PATIENCE, ERR);
    kvmem_transfer_destroy(transfer);
    return status;
}

/* Blocks of the layout that have the tokens of keys. */
static size_t blocks_for(const cache *cache, size_t keys, uint64_t slot) {
    return (size_t)((keys * slot + cache->counts[N] - 1) / cache->counts[N]);
}

/* What a copy without a store would move. */
static kv_job tokens_of(const kvmem_block_table *from, const kvmem_block_table *to, uint64_t tokens) {
    return JOB(it.run.source_table = from, it.run.destination_table = to, it.run.num_tokens = tokens);
}

#define ALL NULL
static const uint32_t whole[] = {0, 1, 2, 3, 4, 5, 6, 7};

/* Eight slots of 32 times as many bytes as a token has elements. */
static kvmem_layout_config slots_of(uint64_t elements, uint64_t alignment) {
    return OPTIONS(kvmem_layout_config, it.num_blocks = 8, it.num_layers = 2, it.outer_dim = 2, it.page_size = 4,
                   it.inner_dim = elements, it.dtype_width = 2, it.order = "BLONHC", it.alignment = alignment);
}

/* From the memory of one engine to the store, and after a restart to that of another one. */
static void move_through(const cache_shape *slots, const cache_shape *from, const cache_shape *to, uint64_t flags) {
    SCRATCH_FILE(path, "store");
    OPENED(cache, source, from, 1);
    OPENED(cache, destination, to, 2);
    kvmem_store *store = open_store(path, slots, flags);
    size_t moved = 0;
    EXPECT_OK(move_keys(store, true, source.layout, ALL, 0, 7, ids, blocks_for(&source, 7, slots->tokens), &moved));
    CHECK_EQ(moved, 7);
    DESTROYED(kvmem_store, store);
    OWNED(kvmem_store) again = open_store(path, slots, flags);
    /* More than there are: the rest of the memory keeps its bytes. */
    EXPECT_OK(move_keys(again, false, destination.layout, ALL, 0, 9, ids + 1, blocks_for(&destination, 9, slots->tokens), &moved));
    CHECK_EQ(moved, 7);
    const kvmem_block_table here = {ids, NUM(ids), 0, 1}, there = {ids + 1, NUM(ids) - 1, 0, 1};
    cache_copy_elements(&destination, &source, REF(tokens_of(&here, &there, 7 * slots->tokens)));
    cache_check_unchanged(&destination);
    cache_check_unchanged(&source);
}

static const uint64_t storage[] = {0, KVMEM_DISK_BUFFERED};

TEST(blocks_of_other_sizes_find_the_tokens_of_each_other) {
    /* Tokens of a slot, of a block that is put, and of one that is got; also where none divides the other. */
    static const uint64_t sizes[][3] = {{4, 8, 2}, {4, 2, 8}, {4, 4, 16}, {8, 4, 4}, {4, 6, 3}, {6, 4, 4}, {1, 5, 3}, {3, 1, 7}, {4, 4, 4}};
    for (size_t i = 0; i < NUM(sizes) * NUM(storage); i++) {
        const uint64_t *size = sizes[i / NUM(storage)];
        const cache_shape slots = {"BLONHC", KEYS, size[0], 2, 0};
        const cache_shape from = {"L/BONHC", 26, size[1], 2, 0}, to = {"BLOHNC", 26, size[2], 2, 0};
        move_through(&slots, &from, &to, storage[i % NUM(storage)]);
    }
}

TEST(blocks_in_other_orders_need_no_page_cache) {
    static const char *const orders[] = {"BLONHC", "BLOHNC", "L/BHNOC", "LO/BHNC", "L/OHCBN"};
    for (size_t i = 0; i < NUM(orders) * NUM(orders); i++) {
        const cache_shape slots = {"BLOHNC", KEYS, 4, 2, 0};
        const cache_shape from = {orders[i / NUM(orders)], 26, 4, 2, 0}, to = {orders[i % NUM(orders)], 26, 8, 2, 0};
        move_through(&slots, &from, &to, 0);
    }
}

/* A store per rank of two; engines with one rank and with four use it. */
TEST(engines_with_other_tensor_parallelism_use_the_heads_of_a_store) {
    const cache_shape slots = {"BLOHNC", KEYS, 4, 2, 0}, one = {"L/BONHC", 26, 8, 4, 0}, four = {"L/BOHNC", 26, 2, 1, 0};
    SCRATCH_FILE(path, "store");
    OPENED(cache, source, &one, 1);
    OPENED(cache, rank, &four, 2);
    OPENED(cache, whole, &one, 3);
    OWNED(kvmem_store) store = open_store(path, &slots, 0);
    size_t moved = 0;
    const kvmem_transfer_options put = OPTIONS(kvmem_transfer_options, it.source_head = 2, it.num_heads = 2);
    EXPECT_OK(move_keys(store, true, source.layout, &put, 0, 6, ids, 3, &moved));
    CHECK_EQ(moved, 6);
    const kvmem_transfer_options last = OPTIONS(kvmem_transfer_options, it.source_head = 1, it.num_heads = 1);
    EXPECT_OK(move_keys(store, false, rank.layout, &last, 0, 5, ids, 10, &moved));
    CHECK_EQ(moved, 5);
    const kvmem_transfer_options both = OPTIONS(kvmem_transfer_options, it.destination_head = 2, it.num_heads = 2);
    EXPECT_OK(move_keys(store, false, whole.layout, &both, 0, 6, ids, 3, &moved));
    const kvmem_block_table table = {ids, NUM(ids), 0, 1};
    cache_copy_elements(&rank, &source, REF(WITH(tokens_of(&table, &table, 20), it.transfer.source_head = 3, it.transfer.num_heads = 1)));
    cache_copy_elements(&whole, &source, REF(WITH(tokens_of(&table, &table, 24), it.transfer.source_head = 2,
                                                  it.transfer.destination_head = 2, it.transfer.num_heads = 2)));
    cache_check_unchanged(&rank);
    cache_check_unchanged(&whole);
}

TEST(stages_of_a_pipeline_use_the_layers_of_a_store) {
    const cache_shape slots = {"BLONHC", KEYS, 4, 2, 4}, all = {"L/BONHC", 26, 4, 2, 6}, stage = {"BLOHNC", 26, 8, 2, 2};
    SCRATCH_FILE(path, "store");
    OPENED(cache, source, &all, 1);
    OPENED(cache, destination, &stage, 2);
    OWNED(kvmem_store) store = open_store(path, &slots, 0);
    size_t moved = 0;
    const kvmem_transfer_options put = OPTIONS(kvmem_transfer_options, it.source_layer = 1, it.num_layers = 4);
    EXPECT_OK(move_keys(store, true, source.layout, &put, 0, 4, ids, 4, &moved));
    CHECK_EQ(moved, 4);
    const kvmem_transfer_options get = OPTIONS(kvmem_transfer_options, it.source_layer = 3, it.destination_layer = 1, it.num_layers = 1);
    EXPECT_OK(move_keys(store, false, destination.layout, &get, 0, 4, ids, 2, &moved));
    const kvmem_block_table table = {ids, NUM(ids), 0, 1};
    cache_copy_elements(&destination, &source, REF(WITH(tokens_of(&table, &table, 16), it.transfer.source_layer = 4,
                                                        it.transfer.destination_layer = 1, it.transfer.num_layers = 1)));
    cache_check_unchanged(&destination);
}

TEST(a_put_moves_only_the_tokens_that_are_not_stored) {
    const cache_shape slots = {"BLONHC", KEYS, 4, 2, 0}, eight = {"BLONHC", 26, 8, 2, 0};
    SCRATCH_FILE(path, "store");
    OPENED(cache, first, &eight, 1);
    OPENED(cache, second, &eight, 2);
    OPENED(cache, result, &eight, 3);
    OWNED(kvmem_store) store = open_store(path, &slots, 0);
    size_t moved = 0;
    EXPECT_OK(move_keys(store, true, first.layout, ALL, 1, 1, (uint32_t[]){6}, 1, &moved));
    EXPECT_OK(move_keys(store, true, first.layout, ALL, 3, 1, (uint32_t[]){7}, 1, &moved));
    EXPECT_OK(move_keys(store, true, second.layout, ALL, 0, 5, ids, 3, &moved)); /* keys 0, 2 and 4 */
    CHECK_EQ(moved, 3);
    EXPECT_OK(move_keys(store, false, result.layout, ALL, 0, 5, ids, 3, &moved));
    CHECK_EQ(moved, 5);
    for (uint64_t key = 0; key < 5; key++) {
        const bool is_old = key == 1 || key == 3;
        const uint32_t old = (uint32_t)(6 + key / 2);
        const kvmem_block_table table = {ids, NUM(ids), key * 4, 1};
        const kvmem_block_table from = is_old ? (kvmem_block_table){&old, 1, 0, 1} : table;
        cache_copy_elements(&result, is_old ? &first : &second, REF(tokens_of(&from, &table, 4)));
    }
    cache_check_unchanged(&result);
}

TEST(damaged_slots_are_not_moved_and_the_others_are) {
    const cache_shape slots = {"BLONHC", KEYS, 4, 2, 0}, eight = {"L/BOHNC", 26, 8, 2, 0};
    SCRATCH_FILE(path, "store");
    OPENED(cache, source, &eight, 1);
    OPENED(cache, destination, &eight, 2);
    OWNED(kvmem_store) store = open_store(path, &slots, 0);
    size_t moved = 0, count = 0;
    EXPECT_OK(move_keys(store, true, source.layout, ALL, 0, 8, ids, 4, &moved));
    GET(kvmem_store_info, info, kvmem_store_get_info, store);
    kvmem_store_entry entries[KEYS];
    EXPECT_OK(kvmem_store_list(store, 0, entries, KEYS, &count, ERR));
    for (size_t i = 0; i < count; i++)
        if (entries[i].key[0] == 3) store_damage(path, entries[i].slot, info.slot_size);
    unsigned char keys[8 * STORE_KEY];
    store_keys(keys, 0, 8);
    const kvmem_store_blocks what = OPTIONS(kvmem_store_blocks, it.keys = keys, it.key_size = STORE_KEY, it.num_keys = 8, it.blocks = ids,
                                            it.num_blocks = 4);
    kvmem_transfer *transfer = NULL;
    EXPECT_OK(kvmem_store_get(store, destination.layout, ALL, &what, &transfer, &moved, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_CORRUPT, "1 of 8 blocks", kvmem_transfer_wait(transfer, PATIENCE, ERR));
    kv_expect_mismatches(transfer, REF((uint64_t)3), 1);
    kvmem_transfer_destroy(transfer);
    const kvmem_block_table before = {ids, NUM(ids), 0, 1}, after = {ids, NUM(ids), 16, 1};
    cache_copy_elements(&destination, &source, REF(tokens_of(&before, &before, 12)));
    cache_copy_elements(&destination, &source, REF(tokens_of(&after, &after, 16)));
    cache_check_unchanged(&destination);
    CHECK(!store_has(store, 3) && store_has(store, 2) && store_has(store, 4));
}

TEST(what_does_not_fit_is_refused_with_the_numbers) {
    const cache_shape slots = {"BLONHC", KEYS, 4, 2, 0}, eight = {"L/BONHC", 26, 8, 2, 0}, three = {"L/BONHC", 26, 3, 2, 0},
                      four = {"L/BONHC", 26, 4, 4, 0};
    SCRATCH_FILE(path, "store");
    OPENED(cache, large, &eight, 1);
    OPENED(cache, odd, &three, 2);
    OPENED(cache, more, &four, 3);
    OWNED(kvmem_store) store = open_store(path, &slots, 0);
    size_t moved = 0;
    for (int puts = 0; puts < 2; puts++) {
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "5 keys of 4 tokens are in 3 blocks of 8 tokens: give 3 block ids",
                       move_keys(store, puts, large.layout, ALL, 0, 5, ids, 5, &moved));
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "num_blocks is 2; 2 keys of 4 tokens are in 3 blocks of 3 tokens",
                       move_keys(store, puts, odd.layout, ALL, 0, 2, ids, 2, &moved));
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "is the store: num_heads is",
                       move_keys(store, puts, more.layout, ALL, 0, 2, ids, 2, &moved));
        EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "leave method 0",
                       move_keys(store, puts, large.layout, REF(OPTIONS(kvmem_transfer_options, it.method = KVMEM_METHOD_URING)), 0, 2,
                                 ids, 1, &moved));
    }
    const kvmem_transfer_options some = OPTIONS(kvmem_transfer_options, it.num_heads = 1);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "a slot is written as a whole",
                   move_keys(store, true, more.layout, &some, 0, 2, ids, 2, &moved));
    EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_RANGE, "is 26",
                   move_keys(store, true, large.layout, ALL, 0, 4, (uint32_t[]){0, 26}, 2, &moved));
    CHECK(!store_has(store, 0));
    EXPECT_OK(move_keys(store, true, large.layout, ALL, 0, KEYS, ids, 6, &moved)); /* no slot is lost */
    CHECK_EQ(moved, KEYS);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "blocks[0] and blocks[1] are 3, and a get fills a block once",
                   move_keys(store, false, large.layout, ALL, 0, 4, (uint32_t[]){3, 3}, 2, &moved));
    EXPECT_OK(move_keys(store, true, large.layout, ALL, 20, 4, (uint32_t[]){3, 3}, 2, &moved));
    CHECK_EQ(moved, 4);
    cache_check_unchanged(&large);
}

/* Slots with gaps could not be read as one range. */
TEST(strides_are_refused_before_anything_is_made) {
    static const struct {
        uint64_t block, layer, token, alignment, flags;
        const char *part;
    } wrong[] = {
        {8192, 0, 0, 0, 0, "leave all strides 0"},
        {4096, 32768, 0, 0, 0, "leave all strides 0"},
        {0, 0, 512, 0, 0, "leave all strides 0"},
        {0, 0, 512, 1, KVMEM_DISK_BUFFERED, "leave all strides 0"},
        {0, 0, 0, 1, KVMEM_DISK_DIRECT_REQUIRED, "a slot has 1056 bytes, and KVMEM_DISK_DIRECT_REQUIRED needs a multiple of 4096"},
    };
    for (size_t i = 0; i < NUM(wrong); i++) {
        SCRATCH_FILE(path, "store");
        store_setup setup;
        store_setup_init(&setup, path, REF(slots_of(wrong[i].flags == KVMEM_DISK_DIRECT_REQUIRED ? 33 : 128, wrong[i].alignment)));
        setup.config.block_stride = wrong[i].block;
        setup.config.layer_stride = wrong[i].layer;
        setup.config.token_stride = wrong[i].token;
        setup.options.flags = wrong[i].flags;
        REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, wrong[i].part, kvmem_store_open, &setup.options, PATIENCE);
        CHECK(access(path, F_OK) != 0);
    }
}

/* Direct I/O cannot access them, so the page cache is used, whether or not it is asked for. */
TEST(slots_of_any_size_are_written_and_read) {
    static const uint64_t elements[] = {33, 48, 128}, alignments[] = {1, 512, 4096};
    static const uint64_t opened[][2] = {{0, 0}, {KVMEM_DISK_BUFFERED, 0}, {0, KVMEM_DISK_BUFFERED}};
    for (size_t i = 0; i < NUM(elements) * NUM(alignments) * NUM(opened); i++) {
        const uint64_t inner = elements[i % NUM(elements)], alignment = alignments[i / NUM(elements) % NUM(alignments)];
        const uint64_t *flags = opened[i / NUM(elements) / NUM(alignments)];
        SCRATCH_FILE(path, "store");
        const kvmem_layout_config config = slots_of(inner, alignment);
        OPENED(kv_side, source, &config, NULL, 1);
        OPENED(kv_side, destination, &config, NULL, 2);
        size_t moved = 0;
        for (int gets = 0; gets < 2; gets++) {
            store_setup setup;
            store_setup_init(&setup, path, &config);
            setup.options.flags = flags[gets];
            OWN(kvmem_store, store, kvmem_store_open, &setup.options, PATIENCE);
            if (!gets) {
                EXPECT_OK(store_put(store, source.layout, 0, whole, 8, &moved));
            } else {
                EXPECT_OK(store_get(store, destination.layout, 0, whole, 8, &moved));
            }
            CHECK_EQ(moved, 8);
            uint64_t damaged = 99;
            EXPECT_OK(kvmem_store_verify(store, PATIENCE, &damaged, ERR));
            CHECK_EQ(damaged, 0);
        }
        const kv_move all = KV_MOVE(2, {0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}, {6, 6}, {7, 7});
        kv_side_check_moved(&destination, &source, &all);
    }
}

TEST(a_put_with_a_wrong_id_evicts_nothing) {
    SCRATCH_FILE(path, "store");
    const kvmem_layout_config config = slots_of(128, 4096);
    const cache_shape four = {"BLONHC", KEYS, 4, 2, 0}, eight = {"L/BONHC", 26, 8, 2, 0};
    OPENED(cache, blocks, &eight, 1);
    OPENED(kv_side, source, &config, NULL, 1);
    size_t moved = 0;
    {
        SCRATCH_FILE(other, "other");
        OWNED(kvmem_store) store = open_store(other, &four, 0);
        EXPECT_OK(move_keys(store, true, blocks.layout, ALL, 0, KEYS, ids, 6, &moved));
        EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_RANGE, "give ids below that",
                       move_keys(store, true, blocks.layout, ALL, 20, 4, (uint32_t[]){0, 26}, 2, &moved));
        for (uint64_t key = 0; key < KEYS; key++) CHECK(store_has(store, key));
    }
    store_setup setup;
    store_setup_init(&setup, path, &config);
    OWN(kvmem_store, store, kvmem_store_open, &setup.options, PATIENCE);
    EXPECT_OK(store_put(store, source.layout, 0, whole, 8, &moved));
    EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_RANGE, "give ids below that",
                   store_put(store, source.layout, 20, (uint32_t[]){0, 8}, 2, &moved));
    for (uint64_t key = 0; key < 8; key++) CHECK(store_has(store, key));
}

/* More than the memory that slots pass through. */
TEST(large_blocks_pass_in_parts) {
    const cache_shape slots = {"BLONHC", KEYS, 512, 160, 3}, blocks = {"L/BOHNC", 7, 1024, 160, 3};
    SCRATCH_FILE(path, "store");
    OPENED(cache, source, &blocks, 1);
    OPENED(cache, destination, &blocks, 2);
    OWNED(kvmem_store) store = open_store(path, &slots, 0);
    size_t moved = 0;
    EXPECT_OK(move_keys(store, true, source.layout, ALL, 0, KEYS, ids, 6, &moved));
    CHECK_EQ(moved, KEYS);
    EXPECT_OK(move_keys(store, false, destination.layout, ALL, 0, KEYS, ids, 6, &moved));
    uint32_t sums[2][6];
    EXPECT_OK(kvmem_layout_checksum(source.layout, ids, 6, KVMEM_TIMEOUT_FOREVER, sums[0], ERR));
    EXPECT_OK(kvmem_layout_checksum(destination.layout, ids, 6, KVMEM_TIMEOUT_FOREVER, sums[1], ERR));
    CHECK_BYTES(sums[1], sums[0], sizeof(sums[0]));
}
