// SPDX-License-Identifier: Apache-2.0
// Transfers between layouts of any order, with different sizes of tokens, heads and blocks, compared with a
// copy element by element.
#include "cache.h"
#include "harness.h"

static const uint32_t source_ids[] = {6, 1, 3, 4, 0}, destination_ids[] = {2, 5, 0, 7, 6, 1, 3, 4};

static void copy_tokens(const cache_shape *from, const cache_shape *to, kv_job options) {
    OPENED(cache, source, from, 1);
    OPENED(cache, destination, to, 2);
    cache_copy_elements(&destination, &source, &options);
    OWN(kvmem_transfer, transfer, kv_prepare, source.layout, destination.layout, &options);
    RUN(transfer);
    cache_check_unchanged(&destination);
    cache_check_unchanged(&source);
    GET(kvmem_transfer_info, info, kvmem_transfer_get_info, transfer);
    const uint64_t heads = options.transfer.num_heads > 0 ? options.transfer.num_heads : from->heads;
    CHECK_EQ(info.bytes, options.run.num_tokens * CACHE_LAYERS * 2 * heads * CACHE_ELEMENTS * CACHE_WIDTH);
    CHECK(info.num_moves > 0);
}

/* A table that stays valid while a few others are created. */
static const kvmem_block_table *table_of(const uint32_t *ids, size_t count, uint64_t first, uint64_t step) {
    static kvmem_block_table tables[8];
    static size_t next;
    kvmem_block_table *table = &tables[next++ % NUM(tables)];
    *table = (kvmem_block_table){ids, count, first, step};
    return table;
}

#define TABLE(ids, first, step) table_of(ids, NUM(ids), first, step)
/* Tokens from one index in each table on. */
#define TOKENS(first_source, first_destination, count, ...)                                          \
    JOB(it.run.source_table = TABLE(source_ids, first_source, 1),            \
            it.run.destination_table = TABLE(destination_ids, first_destination, 1), it.run.num_tokens = count, __VA_ARGS__)

static const char *const orders[] = {"BLONHC", "BLOHNC", "L/BONHC", "L/OBNHC", "L/OBHNC", "L/BHNOC",
                                     "L/BNHOC", "LO/BNHC", "LO/BHNC", "OBNLHC", "OBHNLC", "L/OHCBN"};

TEST(every_order_copies_to_every_other) {
    for (size_t i = 0; i < NUM(orders) * NUM(orders); i++) {
        const cache_shape from = {orders[i / NUM(orders)], 7, 4, 3, 0}, to = {orders[i % NUM(orders)], 8, 4, 3, 0};
        copy_tokens(&from, &to, TOKENS(0, 0, 20, (void)0));
        copy_tokens(&from, &to, TOKENS(4, 8, 12, it.transfer.flags = KVMEM_TRANSFER_BY_LAYER));
    }
}

TEST(blocks_of_any_sizes_hold_the_same_tokens) {
    static const uint64_t sizes[][2] = {{4, 2}, {2, 4}, {6, 4}, {3, 5}, {16, 4}, {4, 4}};
    static const uint64_t tokens[][3] = {{0, 0, 10}, {1, 1, 9}, {3, 0, 7}, {0, 5, 1}, {2, 6, 8}};
    for (size_t i = 0; i < NUM(sizes) * NUM(tokens) * NUM(orders); i++) {
        const uint64_t *size = sizes[i % NUM(sizes)], *range = tokens[i / NUM(sizes) % NUM(tokens)];
        const size_t order = i / NUM(sizes) / NUM(tokens);
        const cache_shape from = {orders[order], 7, size[0], 2, 0}, to = {orders[(order + i) % NUM(orders)], 8,
                                                                 size[1], 2, 0};
        copy_tokens(&from, &to, TOKENS(range[0], range[1], range[2], (void)0));
    }
}

/* A layout of another order, in a temporary file. */
static kvmem_layout *file_open(const cache_shape *shape) {
    kvmem_layout_config config = OPTIONS(kvmem_layout_config, it.num_blocks = shape->blocks,
                                         it.num_layers = CACHE_LAYERS, it.outer_dim = 2,
                                         it.page_size = shape->tokens, it.num_heads = shape->heads,
                                         it.inner_dim = shape->heads * CACHE_ELEMENTS, it.dtype_width = CACHE_WIDTH,
                                         it.order = shape->order);
    kvmem_disk_options disk = OPTIONS(kvmem_disk_options, it.flags = KVMEM_DISK_BUFFERED);
    kvmem_layout_options options = OPTIONS(kvmem_layout_options, it.config = &config, it.disk = &disk,
                                           it.source = KVMEM_LAYOUT_ALLOCATE);
    return MADE(kvmem_layout, kvmem_layout_build, &options);
}

/* Tokens move to a file, and from there to memory of a third order. The result is that of a direct
   transfer. */
TEST(tokens_move_through_files_of_other_orders_and_sizes) {
    static const uint32_t file_ids[] = {4, 0, 3, 1, 2, 5, 6};
    static const uint32_t methods[] = {0, KVMEM_METHOD_PREAD};
    for (size_t i = 0; i < NUM(orders) * NUM(methods); i++) {
        const size_t order = i / NUM(methods);
        const cache_shape from = {orders[order], 7, 4, 2, 0}, kept = {orders[(order + 3) % NUM(orders)], 7, 3, 2, 0},
                    to = {orders[(order + 7) % NUM(orders)], 8, 2, 2, 0};
        OPENED(cache, source, &from, 1);
        OPENED(cache, destination, &to, 2);
        OWNED(kvmem_layout) file = file_open(&kept);
        kv_job whole = TOKENS(3, 1, 13, it.transfer.method = methods[i % NUM(methods)]);
        const kv_job out = WITH(whole, it.run.destination_table = TABLE(file_ids, 2, 1)),
                                     back = WITH(whole, it.run.source_table = TABLE(file_ids, 2, 1));
        cache_copy_elements(&destination, &source, &whole);
        kv_run_with(source.layout, file, &out);
        kv_run_with(file, destination.layout, &back);
        cache_check_unchanged(&destination);
        cache_check_unchanged(&source);
    }
}

/* From two ranks to four and back, as between prefill and decode with different numbers of GPUs. */
TEST(ranges_of_heads_move_to_other_heads) {
    for (size_t order = 0; order < NUM(orders); order++) {
        const cache_shape two = {orders[order], 8, 4, 4, 0}, four = {orders[(order + 5) % NUM(orders)], 8, 2, 2, 0};
        copy_tokens(&two, &four, TOKENS(0, 0, 15, it.transfer.source_head = 2, it.transfer.num_heads = 2));
        copy_tokens(&four, &two, TOKENS(1, 2, 8, it.transfer.destination_head = 2,
                                        it.transfer.num_heads = 2));
        copy_tokens(&two, &two, TOKENS(0, 0, 16, it.transfer.source_head = 3, it.transfer.num_heads = 1));
    }
}

TEST(every_nth_token_moves_to_its_rank) {
    for (size_t order = 0; order < NUM(orders); order++) {
        const cache_shape from = {orders[order], 7, 4, 2, 0}, to = {orders[(order + 3) % NUM(orders)], 8, 4, 2, 0};
        for (uint64_t rank = 0; rank < 3; rank++) {
            copy_tokens(&from, &to, TOKENS(0, 0, 6, it.run.source_table = TABLE(source_ids, rank, 3)));
            copy_tokens(&from, &to,
                        TOKENS(rank, 0, 6, it.run.destination_table = TABLE(destination_ids, rank, 3)));
        }
    }
}

/* Pairs of whole blocks, and the same blocks by tables, between other orders. */
TEST(pairs_of_blocks_are_transposed) {
    static const kvmem_block_pair pairs[] = {{6, 2}, {1, 5}, {3, 0}, {4, 7}, {0, 6}};
    for (size_t i = 0; i < NUM(orders) * NUM(orders); i++) {
        const cache_shape from = {orders[i / NUM(orders)], 7, 4, 3, 0}, to = {orders[i % NUM(orders)], 8, 4, 3, 0};
        OPENED(cache, source, &from, 1);
        OPENED(cache, destination, &to, 2);
        cache_copy_elements(&destination, &source, REF(TOKENS(0, 0, 20, (void)0)));
        const kv_job options = JOB(it.run.pairs = pairs,
                                                       it.run.num_pairs = NUM(pairs), it.run.flags = KVMEM_SUBMIT_VERIFY);
        kv_run_with(source.layout, destination.layout, &options);
        cache_check_unchanged(&destination);
    }
}

/* The checksum of a block does not depend on the order, so it detects changes during a transposition. */
TEST(checksums_are_the_same_in_every_order) {
    static const kvmem_block_pair pair = {1, 2};
    for (size_t i = 0; i < NUM(orders); i++) {
        const cache_shape from = {orders[i], 3, 4, 3, 0}, to = {orders[(i + 4) % NUM(orders)], 3, 4, 3, 0};
        OPENED(cache, source, &from, 1);
        OPENED(cache, destination, &to, 2);
        uint32_t checksums[2];
        EXPECT_OK(kvmem_layout_checksum(source.layout, &pair.source, 1, KVMEM_TIMEOUT_FOREVER, &checksums[0],
                                        ERR));
        kv_job options = JOB(it.run.pairs = &pair, it.run.num_pairs = 1,
                                                 it.run.checksums = checksums);
        OWN(kvmem_transfer, transfer, kv_prepare, source.layout, destination.layout, &options);
        RUN(transfer);
        EXPECT_OK(kvmem_layout_checksum(destination.layout, &pair.destination, 1, KVMEM_TIMEOUT_FOREVER,
                                        &checksums[1], ERR));
        CHECK_EQ(checksums[1], checksums[0]);
        const uint64_t last[CACHE_AXES] = {1, CACHE_LAYERS - 1, 1, 3, 2, CACHE_ELEMENTS - 1};
        source.memory[cache_offset(&source, last)] ^= 1;
        RUN_ENDS(KVMEM_STATUS_CORRUPT, "", transfer);
    }
}

TEST(tokens_and_heads_are_verified) {
    const cache_shape from = {"BLONHC", 7, 4, 4, 0}, to = {"L/OBHNC", 8, 2, 2, 0};
    copy_tokens(&from, &to,
                TOKENS(1, 3, 9, it.transfer.source_head = 1, it.transfer.num_heads = 2, it.run.flags = KVMEM_SUBMIT_VERIFY));
}

static void expect_explained(const kvmem_layout *from, const kvmem_layout *to,
                             const kv_job *options, const char *loops) {
    OWN(kvmem_transfer, transfer, kv_prepare, from, to, options);
    kvmem_compared_method explained;
    const char *text = kv_explained(transfer, &explained);
    GET(kvmem_transfer_info, info, kvmem_transfer_get_info, transfer);
    CHECK(explained.bytes_per_second > 0);
    char line[256];
    snprintf(line, sizeof(line), "\n%s\nbytes read in excess: 0\n", loops);
    CHECK_HAS(text, line);
}

TEST(the_loops_are_explained) {
    static const kvmem_block_pair pairs[] = {{1, 2}, {4, 0}};
    const cache_shape from = {"L/OBNHC", 5, 4, 2, 0}, to = {"L/OBHNC", 5, 4, 2, 0};
    OPENED(cache, source, &from, 1);
    OPENED(cache, same, &from, 2);
    OPENED(cache, destination, &to, 3);
    kv_job options = JOB(it.run.pairs = pairs, it.run.num_pairs = 2);
    expect_explained(source.layout, destination.layout, &options,
                     "loops: 2 blocks, L 3, O 2, H 2, N 4; rows of 10 bytes are contiguous on both sides: C");
    expect_explained(source.layout, same.layout, &options,
                     "loops: 2 blocks, L 3, O 2; rows of 80 bytes are contiguous on both sides: NHC, "
                     "also across blocks with consecutive ids");
    const cache_shape seven = {"L/OBNHC", 7, 4, 2, 0}, eight = {"L/OBHNC", 8, 4, 2, 0};
    OPENED(cache, prompt, &seven, 4);
    OPENED(cache, decode, &eight, 5);
    expect_explained(prompt.layout, decode.layout, REF(TOKENS(0, 2, 8, (void)0)),
                     "loops: 4 spans of 2 tokens, L 3, O 2, H 2, N 2; rows of 10 bytes are contiguous on both sides: C");
}

/* Large enough for several threads, and for non-temporal copies. */
TEST(large_transposed_copies_are_correct) {
    const cache_shape from = {"L/OBNHC", 300, 16, 8, 0}, to = {"L/OBHNC", 300, 16, 8, 0};
    uint32_t ids[2][256];
    for (uint32_t i = 0; i < 256; i++) {
        ids[0][i] = i * 7 % 300;
        ids[1][i] = i * 11 % 300;
    }
    OPENED(cache, source, &from, 1);
    OPENED(cache, destination, &to, 2);
    const kvmem_block_table tables[] = {{ids[0], 256, 5, 1}, {ids[1], 256, 37, 1}};
    const kv_job options = JOB(it.run.source_table = &tables[0],
                                                   it.run.destination_table = &tables[1], it.run.num_tokens = 4000);
    cache_copy_elements(&destination, &source, &options);
    kv_run_with(source.layout, destination.layout, &options);
    cache_check_unchanged(&destination);
}

/* Each step has other tables. A step that fails keeps the tables of the previous one. */
TEST(each_step_has_its_own_tables) {
    const cache_shape from = {"L/OBNHC", 7, 4, 2, 0}, to = {"BLOHNC", 8, 3, 2, 0};
    OPENED(cache, source, &from, 1);
    OPENED(cache, destination, &to, 2);
    kv_job options = TOKENS(0, 0, 1, (void)0);
    OWN(kvmem_transfer, transfer, kv_prepare, source.layout, destination.layout, &options);
    for (uint64_t round = 0; round < 20; round++) {
        options.run.source_table = TABLE(source_ids, round % 5, 1);
        options.run.destination_table = TABLE(destination_ids, round % 7, 1);
        options.run.num_tokens = 1 + round % 12;
        kvmem_submit_options step = OPTIONS(kvmem_submit_options, it.source_table = options.run.source_table,
                                            it.destination_table = options.run.destination_table,
                                            it.num_tokens = options.run.num_tokens);
        kv_fill(source.memory, source.size, (uint32_t)round);
        memcpy(source.expected, source.memory, source.size);
        cache_copy_elements(&destination, &source, &options);
        RUN_WITH(transfer, &step);
        cache_check_unchanged(&destination);
        step.num_tokens = 1000;
        EXPECT(KVMEM_STATUS_OUT_OF_RANGE, kvmem_transfer_submit(transfer, &step, ERR));
        RUN(transfer);
        cache_check_unchanged(&destination);
    }
}

static void refuse(const cache_shape *from, const cache_shape *to, kv_job options, kvmem_status status,
                   const char *part) {
    OPENED(cache, source, from, 1);
    OPENED(cache, destination, to, 2);
    REFUSE(status, part, kv_prepare, source.layout, destination.layout, &options);
    cache_check_unchanged(&source);
    cache_check_unchanged(&destination);
}

TEST(selections_that_do_not_fit_fail_with_their_name) {
    static const kvmem_block_pair pair = {0, 0};
    static const uint32_t twice[] = {0, 1, 0, 3}, beyond[] = {0, 8};
    const cache_shape four = {"L/OBNHC", 7, 4, 4, 0}, two = {"L/OBHNC", 8, 2, 4, 0}, fewer = {"L/OBHNC", 8, 4, 2, 0},
                same = {"L/OBHNC", 8, 4, 4, 0};
    const kvmem_status invalid = KVMEM_STATUS_INVALID_ARGUMENT, out = KVMEM_STATUS_OUT_OF_RANGE;
    refuse(&four, &two, TOKENS(0, 0, 0, (void)0), invalid, "num_tokens is 0");
    refuse(&four, &two, TOKENS(0, 0, 21, (void)0), out,
           "source_table, which has 5 blocks of 4 tokens; add blocks to the table, or lower num_tokens");
    refuse(&four, &two, TOKENS(0, 0, 17, (void)0), out,
           "destination_table, which has 8 blocks of 2 tokens");
    refuse(&four, &two, TOKENS(UINT64_MAX, 0, 2, (void)0), out, "source_table");
    refuse(&four, &two, TOKENS(0, 0, 8, it.run.destination_table = TABLE(twice, 0, 1)), invalid,
           "token 0 of block 0 is a destination twice; name each destination block once");
    refuse(&four, &two, TOKENS(0, 0, 4, it.run.destination_table = TABLE(beyond, 0, 1)), out,
           "blocks[1] of destination_table is 8; the layout has 8 blocks, give ids below that");
    /* Whole blocks of equal size are moved as pairs. The messages still name the table. */
    refuse(&four, &same, TOKENS(0, 0, 16, it.run.destination_table = TABLE(twice, 0, 1)), invalid,
           "token 0 of block 0 is a destination twice; name each destination block once");
    refuse(&four, &same, TOKENS(0, 0, 8, it.run.destination_table = TABLE(beyond, 0, 1)), out,
           "blocks[1] of destination_table is 8; the layout has 8 blocks, give ids below that");
    refuse(&four, &two, TOKENS(0, 0, 4, it.run.source_table = NULL), invalid, "source_table is NULL");
    refuse(&four, &two, TOKENS(0, 0, 4, it.run.destination_table = NULL), invalid,
           "destination_table is NULL");
    refuse(&four, &two, TOKENS(0, 0, 4, it.run.pairs = &pair; it.run.num_pairs = 1), invalid,
           "1 pair and block tables");
    refuse(&four, &two, TOKENS(0, 0, 4, it.run.source_table = table_of(NULL, 3, 0, 1)), invalid,
           "source_table");
    refuse(&four, &two,
           JOB(it.run.num_tokens = 3, it.run.pairs = &pair, it.run.num_pairs = 1), invalid,
           "num_tokens is 3");
    refuse(&four, &two, JOB(it.run.pairs = &pair, it.run.num_pairs = 1), invalid,
           "page_size is 4 in the source layout and 2 in the destination");
    refuse(&four, &fewer, TOKENS(0, 0, 4, (void)0), invalid,
           "num_heads is 4 in the source layout and 2 in the destination; to move some of the heads, give num_heads");
    refuse(&four, &fewer, TOKENS(0, 0, 4, it.transfer.num_heads = 3), out,
           "outside the destination layout, which has 2; change destination_head or num_heads");
    refuse(&four, &fewer, TOKENS(0, 0, 4, it.transfer.source_head = 3; it.transfer.num_heads = 2), out,
           "outside the source layout, which has 4; change source_head or num_heads");
    refuse(&four, &fewer, TOKENS(0, 0, 4, it.transfer.source_head = 1), invalid,
           "num_heads is 0, which means all");
}

/* Without num_heads a kind does not define the order of heads and tokens, so wrong bytes could arrive. */
TEST(heads_that_are_apart_need_their_number_on_both_sides) {
    static const kvmem_block_pair pair = {0, 1};
    const kv_job options = JOB(it.run.pairs = &pair,
                                                   it.run.num_pairs = 1);
    const cache_shape apart = {"L/OBHNC", 7, 4, 4, 0}, together = {"L/BNOHC", 7, 4, 4, 0};
    kvmem_layout_config config = OPTIONS(kvmem_layout_config, it.num_blocks = 7, it.num_layers = CACHE_LAYERS,
                                         it.outer_dim = 2, it.page_size = 4, it.inner_dim = 4 * CACHE_ELEMENTS,
                                         it.dtype_width = CACHE_WIDTH, it.order = KVMEM_ORDER_FULLY_CONTIGUOUS);
    OWNED(kvmem_layout) unknown = layout_allocate_system(&config);
    OPENED(cache, hnd, &apart, 1);
    OPENED(cache, nhd, &together, 1);
    const char *const text = "num_heads is 0 in the source layout, and the heads of a token are apart";
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, text, kv_prepare, unknown, hnd.layout, &options);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "num_heads is 0 in the destination layout", kv_prepare,
           hnd.layout, unknown, &options);
    kv_run_with(unknown, nhd.layout, &options);
    const kv_job some = JOB(it.run.pairs = &pair, it.run.num_pairs = 1,
                                                it.transfer.num_heads = 2);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "or move it without a range of heads if it has none", kv_prepare,
           unknown, nhd.layout, &some);
}
