// SPDX-License-Identifier: Apache-2.0
// Layouts of several parts: how they are combined, and transfers of all or some parts, compared with separate
// transfers of each part.
#include "harness.h"
#include "parts.h"

/* Keys and values of different width, and scales of the keys with another order of heads. */
static const part_shape apart[] = {{"values", "L/BNHC", 3, 1, 4, 2, 24, 2},
                                   {"keys", "L/BHNC", 3, 1, 4, 2, 40, 2},
                                   {"scales", "BLNHC", 3, 1, 4, 2, 3, 1}};
static const part_shape reordered[] = {{"scales", "L/BHNC", 3, 1, 4, 2, 3, 1},
                                       {"keys", "LBNHC", 3, 1, 4, 2, 40, 2},
                                       {"values", "BLHNC", 3, 1, 4, 2, 24, 2}};
static const kvmem_block_pair pairs[] = {{7, 2}, {1, 5}, {2, 6}, {3, 7}, {0, 0}};

static kv_job all_pairs = {
    .transfer = {.struct_size = sizeof(kvmem_transfer_options)},
    .run = {.struct_size = sizeof(kvmem_submit_options), .pairs = pairs, .num_pairs = NUM(pairs)}};

TEST(parts_are_listed_and_found_by_name) {
    OWNED(kvmem_layout) cache = parts_build_system(apart, NUM(apart), NULL);
    GET(kvmem_layout_info, info, kvmem_layout_get_info, cache);
    CHECK_EQ(info.num_parts, 3);
    CHECK_EQ(info.num_blocks, PARTS_BLOCKS);
    CHECK_EQ(info.num_regions, 3 + 3 + 1);
    CHECK_EQ(info.tier, KVMEM_TIER_SYSTEM);
    CHECK_STR(info.order, "");
    CHECK_EQ(info.num_layers, 0);
    CHECK_STR(info.order, "");
    static const char *const sorted[] = {"keys", "scales", "values"};
    for (size_t i = 0; i < NUM(sorted); i++) {
        CHECK_STR(info.part_names[i], sorted[i]);
        OWN(kvmem_layout, part, kvmem_layout_get_part, cache, sorted[i]);
        GET(kvmem_layout_info, of_part, kvmem_layout_get_info, part);
        CHECK_EQ(of_part.num_parts, 0);
        CHECK_EQ(of_part.num_layers, 3);
    }
    REFUSE(KVMEM_STATUS_NOT_FOUND, "no part 'pages'; its parts are keys, scales, values",
           kvmem_layout_get_part, cache, "pages");
    OWN(kvmem_layout, keys, kvmem_layout_get_part, cache, "keys");
    REFUSE(KVMEM_STATUS_NOT_FOUND, "it was not combined from parts", kvmem_layout_get_part, keys, "keys");
    CHECK(layout_info(keys).part_names == NULL);
}

TEST(addresses_are_those_of_a_part) {
    OWNED(kvmem_layout) cache = parts_build_system(apart, NUM(apart), NULL);
    kvmem_block block;
    const char *advice = "the layout has the parts keys, scales, values";
    EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, advice, kvmem_layout_get_block(cache, 0, 0, 0, &block, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, advice, kvmem_layout_get_row(cache, 0, 0, 0, 0, 0, &block, ERR));
    const kvmem_layout_info whole = layout_info(cache);
    CHECK(whole.bases == NULL);
    CHECK_EQ(whole.block_stride + whole.layer_step + whole.piece_size + whole.row_size, 0);
    OWN(kvmem_layout, values, kvmem_layout_get_part, cache, "values");
    EXPECT_OK(kvmem_layout_get_block(values, 1, 2, 0, &block, ERR));
    /* The regions are ordered by the names of the parts: keys, scales, values. */
    OWN(kvmem_region, region, kvmem_layout_get_region, cache, 3 + 1 + 2);
    GET(kvmem_region_info, info, kvmem_region_get_info, region);
    CHECK_EQ(block.address, info.address + 4 * 2 * 24 * 2);
    CHECK_EQ(block.size, 4 * 2 * 24 * 2);
}

/* A filled source, and two equal destinations. */
typedef struct caches {
    kvmem_layout *source, *destination, *expected;
} caches;

static void caches_open(caches *caches) {
    caches->source = parts_build_system(apart, NUM(apart), NULL);
    caches->destination = parts_build_system(reordered, NUM(reordered), NULL);
    caches->expected = parts_build_system(reordered, NUM(reordered), NULL);
    parts_fill(apart, NUM(apart), caches->source, 1);
    parts_fill(reordered, NUM(reordered), caches->destination, 20);
    parts_fill(reordered, NUM(reordered), caches->expected, 20);
}

static void caches_close(caches *caches) {
    CALL(kvmem_layout_destroy(caches->source));
    CALL(kvmem_layout_destroy(caches->destination));
    CALL(kvmem_layout_destroy(caches->expected));
}

static void check_expected(const caches *caches) {
    parts_check_same(reordered, NUM(reordered), caches->destination, caches->expected);
}

/* Moves with these options, once as a whole and once part by part. */
static void move(const caches *caches, const kv_job *options) {
    kv_run_with(caches->source, caches->destination, options);
    parts_run_apart(reordered, NUM(reordered), caches->source, caches->expected, options);
    check_expected(caches);
}

TEST(all_parts_move_in_one_transfer) {
    OPENED(caches, caches);
    OWN(kvmem_queue, queue, kvmem_queue_create);
    const kv_job options = WITH(all_pairs, it.transfer.queue = queue, it.run.user_data = 5);
    OWN(kvmem_transfer, transfer, kv_prepare, caches.source, caches.destination, &options);
    RUN(transfer);
    const uint64_t bytes = NUM(pairs) * 3 * 4 * 2 * (40 * 2 + 24 * 2 + 3);
    kvmem_compared_method explanation;
    CHECK_HAS(kv_explained(transfer, &explanation), "loops of part 'scales': 5 blocks");
    GET(kvmem_transfer_info, info, kvmem_transfer_get_info, transfer);
    CHECK_EQ(info.bytes, bytes);
    CHECK_EQ(info.method, KVMEM_METHOD_MEMCPY);
    kvmem_completion completions[4];
    GET(size_t, count, kvmem_queue_wait, queue, 0, completions, NUM(completions));
    CHECK_EQ(count, 1);
    CHECK_EQ(completions[0].user_data, 5);
    CHECK_EQ(completions[0].bytes, bytes);
    parts_run_apart(reordered, NUM(reordered), caches.source, caches.expected, &all_pairs);
    check_expected(&caches);
    parts_check_blocks(caches.source, caches.destination, pairs, NUM(pairs));
}

TEST(tokens_layers_and_heads_are_selected_in_all_parts) {
    OPENED(caches, caches);
    move(&caches, REF(WITH(all_pairs, it.transfer.source_layer = 1, it.transfer.num_layers = 2)));
    move(&caches, REF(WITH(all_pairs, it.transfer.source_head = 1, it.transfer.num_heads = 1)));
    const uint32_t from[] = {8, 4, 1}, to[] = {0, 3, 5, 7};
    const kvmem_block_table source = {from, NUM(from), 1, 1}, destination = {to, NUM(to), 3, 1};
    kv_job tables = JOB(it.run.source_table = &source,
                                                  it.run.destination_table = &destination, it.run.num_tokens = 11);
    move(&caches, &tables);
    move(&caches, REF(WITH(tables, it.run.flags = KVMEM_SUBMIT_VERIFY)));
    move(&caches, REF(WITH(all_pairs, it.run.flags = KVMEM_SUBMIT_VERIFY)));
    move(&caches, REF(WITH(all_pairs, it.transfer.flags = KVMEM_TRANSFER_BY_LAYER)));
}

TEST(new_pairs_move_all_parts) {
    OPENED(caches, caches);
    OWN(kvmem_transfer, transfer, kv_prepare, caches.source, caches.destination, &all_pairs);
    const kvmem_block_pair others[] = {{8, 1}, {4, 4}};
    const kvmem_submit_options step = OPTIONS(kvmem_submit_options, it.pairs = others,
                                              it.num_pairs = NUM(others));
    RUN_WITH(transfer, &step);
    const kv_job same = WITH(all_pairs, it.run.pairs = others, it.run.num_pairs = NUM(others));
    parts_run_apart(reordered, NUM(reordered), caches.source, caches.expected, &same);
    check_expected(&caches);
}

TEST(some_parts_move_and_the_others_are_unchanged) {
    OPENED(caches, caches);
    const char *const names[] = {"values", "scales"};
    kv_run_with(caches.source, caches.destination,
                REF(WITH(all_pairs, it.transfer.parts = names, it.transfer.num_parts = NUM(names),
                         it.run.flags = KVMEM_SUBMIT_VERIFY)));
    const part_shape selected[] = {reordered[0], reordered[2]};
    parts_run_apart(selected, NUM(selected), caches.source, caches.expected, &all_pairs);
    check_expected(&caches);
}

/* A transfer of one part equals a transfer between the layouts of that part. */
TEST(a_single_part_moves) {
    OPENED(caches, caches);
    for (size_t i = 0; i < NUM(reordered); i++) {
        kv_run_with(caches.source, caches.destination,
                    REF(WITH(all_pairs, it.transfer.parts = &reordered[i].name, it.transfer.num_parts = 1)));
        parts_run_apart(&reordered[i], 1, caches.source, caches.expected, &all_pairs);
        check_expected(&caches);
    }
}

/* The checksum of a block covers its parts, sorted by name. */
TEST(checksums_cover_all_parts_sorted_by_name) {
    OWNED(kvmem_layout) cache = parts_build_system(apart, NUM(apart), NULL);
    parts_fill(apart, NUM(apart), cache, 7);
    static const char *const sorted[] = {"keys", "scales", "values"};
    const uint64_t elements[] = {40, 3, 24}, widths[] = {2, 1, 2};
    uint32_t expected = 0;
    for (size_t i = 0; i < NUM(sorted); i++) {
        OWN(kvmem_layout, part, kvmem_layout_get_part, cache, sorted[i]);
        for (uint64_t layer = 0; layer < 3; layer++) {
            for (uint64_t token = 0; token < 4; token++) {
                for (uint64_t head = 0; head < 2; head++) {
                    GET(kvmem_block, row, kvmem_layout_get_row, part, 6, layer, 0, token, head);
                    CHECK_EQ(row.size, elements[i] * widths[i]);
                    expected = crc_append(expected, (const unsigned char *)(uintptr_t)row.address, row.size);
                }
            }
        }
    }
    GET(uint32_t, computed, kvmem_layout_checksum, cache, (const uint32_t[]){6}, 1, KVMEM_TIMEOUT_FOREVER);
    CHECK_EQ(computed, expected);
    /* A transfer compares with it. */
    OWNED(kvmem_layout) other = parts_build_system(reordered, NUM(reordered), NULL);
    const kvmem_block_pair pair = {6, 1};
    kv_job options = JOB(it.run.pairs = &pair, it.run.num_pairs = 1,
                                             it.run.checksums = &computed);
    kv_run_with(cache, other, &options);
    const uint32_t wrong = computed + 1;
    options.run.checksums = &wrong;
    OWN(kvmem_transfer, corrupt, kv_prepare, cache, other, &options);
    RUN_ENDS(KVMEM_STATUS_CORRUPT, "source block 6", corrupt);
}

TEST(parts_that_do_not_match_fail_with_their_name) {
    const part_shape two[] = {apart[0], apart[1]};
    const part_shape wider[] = {apart[0], apart[2], {"keys", "L/BHNC", 3, 1, 4, 2, 48, 2}};
    const part_shape longer[] = {apart[0], apart[2], {"keys", "L/BHNC", 3, 1, 8, 2, 40, 2}};
    const part_shape deeper[] = {apart[0], apart[2], {"keys", "L/BHNC", 4, 1, 4, 2, 40, 2}};
    OWNED(kvmem_layout) cache = parts_build_system(apart, NUM(apart), NULL);
    OWNED(kvmem_layout) fewer = parts_build_system(two, NUM(two), NULL);
    OWNED(kvmem_layout) wide = parts_build_system(wider, NUM(wider), NULL);
    OWNED(kvmem_layout) long_pages = parts_build_system(longer, NUM(longer), NULL);
    OWNED(kvmem_layout) deep = parts_build_system(deeper, NUM(deeper), NULL);
    OWN(kvmem_layout, keys, kvmem_layout_get_part, cache, "keys");
    const char *const scales[] = {"scales"}, *const twice[] = {"keys", "keys"}, *const none[] = {"pages"};
    const struct {
        const kvmem_layout *from, *to;
        const char *const *parts;
        size_t num_parts;
        kvmem_status status;
        const char *message;
    } wrong[] = {
        {cache, fewer, NULL, 0, KVMEM_STATUS_INVALID_ARGUMENT,
         "part 'scales' of the source layout is not in the destination layout, whose parts are keys, values"},
        {fewer, cache, NULL, 0, KVMEM_STATUS_INVALID_ARGUMENT,
         "part 'scales' of the destination layout is not in the source layout"},
        {cache, keys, NULL, 0, KVMEM_STATUS_INVALID_ARGUMENT,
         "the source layout has the parts keys, scales, values, and the destination layout has none"},
        {keys, cache, scales, 1, KVMEM_STATUS_INVALID_ARGUMENT, "the destination layout has the parts"},
        {keys, keys, scales, 1, KVMEM_STATUS_NOT_FOUND, "it was not combined from parts"},
        {cache, fewer, scales, 1, KVMEM_STATUS_NOT_FOUND, "the destination of the transfer"},
        {cache, cache, none, 1, KVMEM_STATUS_NOT_FOUND, "no part 'pages'"},
        {cache, wide, twice, 2, KVMEM_STATUS_INVALID_ARGUMENT, "part 'keys' is selected twice"},
        {cache, wide, none, 0, KVMEM_STATUS_INVALID_ARGUMENT, "num_parts is 0"},
        {cache, wide, NULL, 0, KVMEM_STATUS_INVALID_ARGUMENT,
         "part 'keys': the number of elements per head is 40 in the source layout and 48"},
        {cache, long_pages, NULL, 0, KVMEM_STATUS_INVALID_ARGUMENT, "part 'keys': page_size is 4"},
        {cache, deep, NULL, 0, KVMEM_STATUS_INVALID_ARGUMENT, "part 'keys': num_layers is 3"},
    };
    for (size_t i = 0; i < NUM(wrong); i++) {
        REFUSE(wrong[i].status, wrong[i].message, kv_prepare, wrong[i].from, wrong[i].to,
               REF(WITH(all_pairs, it.transfer.parts = wrong[i].parts, it.transfer.num_parts = wrong[i].num_parts)));
    }
    /* Tables count tokens, so all parts need blocks of one size; all parts need the same layers. */
    OWNED(kvmem_layout) same_long = parts_build_system(longer, NUM(longer), NULL);
    OWNED(kvmem_layout) same_deep = parts_build_system(deeper, NUM(deeper), NULL);
    const kvmem_block_table table = {(const uint32_t[]){0, 1}, 2, 0, 1};
    kv_job tables = JOB(it.run.source_table = &table,
                                                  it.run.destination_table = &table, it.run.num_tokens = 4);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "part 'keys' has blocks of 8 tokens in the source layout",
           kv_prepare, long_pages, same_long, &tables);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "part 'keys' has 4 layers and part 'scales' 3",
           kv_prepare,
           deep, same_deep, REF(WITH(all_pairs, it.transfer.flags = KVMEM_TRANSFER_BY_LAYER)));
    kv_run_with(deep, same_deep, &all_pairs);
}

/* A buffer whose rows contain data and scales, with views of it as parts. */
typedef struct rows {
    kvmem_region *buffer;
} rows;

enum { ROW = 136, DATA = 128, PAGE_ROWS = 4 * 2 };

static void rows_open(rows *rows) {
    rows->buffer = region_create_system((uint64_t)PARTS_BLOCKS * PAGE_ROWS * ROW, 0);
}

static void rows_close(rows *rows) { CALL(kvmem_region_destroy(rows->buffer)); }

static kvmem_layout *part_of_rows(const rows *rows, uint64_t offset, uint64_t size, uint64_t blocks) {
    const kvmem_layout_config config =
        OPTIONS(kvmem_layout_config, it.num_blocks = blocks, it.num_layers = 1, it.outer_dim = 1,
                it.page_size = 4, it.inner_dim = 2 * size, it.num_heads = 2, it.dtype_width = 1,
                it.order = "BNHC", it.head_stride = ROW, it.token_stride = 2 * ROW,
                it.block_stride = 8 * ROW);
    GET(kvmem_region_info, info, kvmem_region_get_info, rows->buffer);
    OWN(kvmem_region, view, kvmem_region_create_view, rows->buffer, offset,
        info.size - offset);
    return regions_lay_out(&config, &view, 1, NULL);
}

TEST(parts_may_be_interleaved_but_not_overlap) {
    OPENED(rows, here);
    OPENED(rows, there);
    OWNED(kvmem_layout) data = part_of_rows(&here, 0, DATA, PARTS_BLOCKS);
    OWNED(kvmem_layout) scales = part_of_rows(&here, DATA, ROW - DATA, PARTS_BLOCKS);
    OWNED(kvmem_layout) other_data = part_of_rows(&there, 0, DATA, PARTS_BLOCKS);
    OWNED(kvmem_layout) other_scales = part_of_rows(&there, DATA, ROW - DATA, PARTS_BLOCKS);
    const kvmem_layout_part near[] = {{"data", data}, {"scales", scales}};
    const kvmem_layout_part far[] = {{"data", other_data}, {"scales", other_scales}};
    OWN(kvmem_layout, source, kvmem_layout_combine, near, 2);
    OWN(kvmem_layout, destination, kvmem_layout_combine, far, 2);
    GET(kvmem_region_info, from, kvmem_region_get_info, here.buffer);
    GET(kvmem_region_info, to, kvmem_region_get_info, there.buffer);
    kv_fill((unsigned char *)(uintptr_t)from.address, from.size, 3);
    kvmem_block_pair all[PARTS_BLOCKS];
    for (uint32_t i = 0; i < PARTS_BLOCKS; i++) all[i] = (kvmem_block_pair){i, i};
    kv_run_with(source, destination, REF(JOB(it.run.pairs = all,
                                                 it.run.num_pairs = PARTS_BLOCKS)));
    CHECK_BYTES((unsigned char *)(uintptr_t)to.address, (unsigned char *)(uintptr_t)from.address, from.size);

    const struct {
        uint64_t offset, size;
    } wrong[] = {{DATA - 1, 8}, {0, 8}, {DATA, 9}, {ROW + 120, 8}};
    for (size_t i = 0; i < NUM(wrong); i++) {
        OWNED(kvmem_layout) part = part_of_rows(&here, wrong[i].offset, wrong[i].size, PARTS_BLOCKS - 1);
        OWNED(kvmem_layout) short_data = part_of_rows(&here, 0, DATA, PARTS_BLOCKS - 1);
        const kvmem_layout_part parts[] = {{"data", short_data}, {"more", part}};
        REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "the parts 'data' and 'more' overlap in memory",
               kvmem_layout_combine, parts, 2);
    }
}

TEST(layouts_that_cannot_be_combined_fail_with_their_name) {
    OWNED(kvmem_layout) cache = parts_build_system(apart, NUM(apart), NULL);
    OWN(kvmem_layout, keys, kvmem_layout_get_part, cache, "keys");
    OWN(kvmem_layout, values, kvmem_layout_get_part, cache, "values");
    const kvmem_layout_config other = WITH(part_config(&apart[1]), it.num_blocks = PARTS_BLOCKS + 1);
    OWNED(kvmem_layout) more_blocks = layout_allocate_system(&other);
    const kvmem_layout_config config = part_config(&apart[1]);
    const kvmem_disk_options disk = OPTIONS(kvmem_disk_options, it.flags = KVMEM_DISK_BUFFERED);
    OWN(kvmem_layout, file, kvmem_layout_build,
        REF(OPTIONS(kvmem_layout_options, it.config = &config, it.disk = &disk,
                    it.source = KVMEM_LAYOUT_ALLOCATE)));
    const char *const long_name = "a name that is longer than the sixty-four bytes that a name may have";
    const struct {
        kvmem_layout_part parts[2];
        size_t count;
        const char *message;
    } wrong[] = {
        {{{"a", keys}}, 0, "num_parts is 0"},
        {{{"a", keys}, {"a", values}}, 2, "two parts have the name 'a'"},
        {{{"", keys}}, 1, "parts[0].name has 0 bytes"},
        {{{long_name, keys}}, 1, "parts[0].name has 68 bytes"},
        {{{"a\tb", keys}}, 1, "control character"},
        {{{NULL, keys}}, 1, "parts[0] of 1: name is NULL"},
        {{{"a", keys}, {"b", NULL}}, 2, "parts[1] of 2: layout is NULL"},
        {{{"a", keys}, {"b", cache}}, 2, "part 'b' was combined from parts itself"},
        {{{"a", keys}, {"b", keys}}, 2, "the parts 'a' and 'b' overlap in memory"},
        {{{"a", keys}, {"b", more_blocks}}, 2, "part 'b' has 10 blocks and part 'a' 9"},
        {{{"a", keys}, {"b", file}}, 2, "part 'a' is memory of tier"},
    };
    for (size_t i = 0; i < NUM(wrong); i++)
        REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, wrong[i].message, kvmem_layout_combine, wrong[i].parts,
               wrong[i].count);
}

/* The parts live as long as the layout, and a part as long as its handle. */
TEST(handles_may_be_destroyed_in_any_order) {
    kvmem_layout *cache = parts_build_system(apart, NUM(apart), NULL);
    OWN(kvmem_layout, keys, kvmem_layout_get_part, cache, "keys");
    CALL(kvmem_layout_destroy(cache));
    GET(kvmem_block, row, kvmem_layout_get_row, keys, 8, 2, 0, 3, 1);
    memset((void *)(uintptr_t)row.address, 1, row.size);
}

/* To a file and back, by every method for files. */
TEST(all_parts_move_to_files_and_back) {
    const kvmem_disk_options disk = OPTIONS(kvmem_disk_options, it.flags = KVMEM_DISK_BUFFERED);
    OWNED(kvmem_layout) files = parts_build(apart, NUM(apart),
                                            REF(OPTIONS(kvmem_layout_options, it.disk = &disk,
                                                        it.source = KVMEM_LAYOUT_ALLOCATE)));
    static const uint32_t methods[] = {KVMEM_METHOD_URING, KVMEM_METHOD_PREAD};
    for (size_t i = 0; i < NUM(methods); i++) {
        OPENED(caches, caches);
        kvmem_block_pair back[NUM(pairs)];
        for (size_t j = 0; j < NUM(pairs); j++)
            back[j] = (kvmem_block_pair){pairs[j].destination, pairs[j].source};
        kv_job there = WITH(all_pairs, it.transfer.method = methods[i],
                            it.run.flags = KVMEM_SUBMIT_VERIFY);
        const kv_job here = WITH(there, it.run.pairs = back);
        kv_run_with(caches.source, files, &there);
        kv_run_with(files, caches.destination, &here);
        const kvmem_block_pair same[] = {{7, 7}, {1, 1}, {2, 2}, {3, 3}, {0, 0}};
        parts_run_apart(reordered, NUM(reordered), caches.source, caches.expected,
                        REF(WITH(all_pairs, it.run.pairs = same)));
        check_expected(&caches);
    }
}

TEST(resizing_a_layout_that_is_not_elastic_fails) {
    OWNED(kvmem_layout) cache = parts_build_system(apart, NUM(apart), NULL);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "part 'keys': the layout is not elastic",
                   kvmem_layout_resize(cache, 2, ERR));
}
