// SPDX-License-Identifier: Apache-2.0
// Checksums of blocks in memory and in files, and transfers that are verified by them.
#include "harness.h"
#include "regions.h"

static const uint32_t some_blocks[] = {6, 0, 3, 3, 5};
static const kvmem_block_pair pairs[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}};
static const kv_move all_layers = {pairs, NUM(pairs), 0, 0, 3};

static void check_checksums(const kvmem_layout *layout, const kv_side *model) {
    uint32_t checksums[NUM(some_blocks)];
    memset(checksums, 0xEE, sizeof(checksums));
    EXPECT_OK(kvmem_layout_checksum(layout, some_blocks, NUM(some_blocks), KVMEM_TIMEOUT_FOREVER, checksums,
                                    ERR));
    for (size_t i = 0; i < NUM(some_blocks); i++)
        CHECK_EQ(checksums[i], crc_of_block(model, some_blocks[i], 0, model->config.num_layers));
}

/* The check value that catalogues of CRCs list for CRC-32C. */
TEST(the_checksum_is_crc32c) {
    OPENED(kv_side, side, REF(WITH(kv_config(&kv_kinds[0]), it.num_blocks = 1, it.num_layers = 1,
                                   it.outer_dim = 1, it.page_size = 1, it.inner_dim = 9, it.dtype_width = 1,
                                   it.num_heads = 0)), NULL, 1);
    memcpy(kv_side_piece(&side, 0, 0, 0), "123456789", 9);
    const uint32_t block = 0;
    GET(uint32_t, checksum, kvmem_layout_checksum, side.layout, &block, 1, KVMEM_TIMEOUT_FOREVER);
    CHECK_EQ(checksum, 0xE3069283);
}

TEST(kind_and_alignment_make_no_difference) {
    static const uint64_t alignments[] = {1, 64, 4096};
    for (size_t i = 0; i < KV_NUM_KINDS * NUM(alignments); i++) {
        kvmem_layout_config config = kv_config(&kv_kinds[i % KV_NUM_KINDS]);
        config.alignment = alignments[i / KV_NUM_KINDS];
        KV_SIDES(first, side, kv_config(&kv_kinds[0]), config);
        kv_run(first.layout, side.layout, &all_layers);
        kv_expect_moved(&side, &first, &all_layers);
        check_checksums(side.layout, &side);
        for (size_t pair = 0; pair < NUM(pairs); pair++)
            CHECK_EQ(crc_of_block(&side, pairs[pair].destination, 0, 3),
                     crc_of_block(&first, pairs[pair].source, 0, 3));
    }
}

/* In place and through a buffer: with a limit that does not pass the checksums are the same, with none left
   there are none. */
TEST(checksums_have_a_limit_of_time) {
    SCRATCH(directory);
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OPENED(file_side, file, &config, NULL, &directory, KVMEM_DISK_BUFFERED, 4);
    OPENED(kv_side, host, &config, NULL, 1);
    const kvmem_layout *const layouts[] = {file.model.layout, host.layout};
    for (size_t i = 0; i < NUM(layouts); i++) {
        uint32_t expected[NUM(some_blocks)], found[NUM(some_blocks)];
        EXPECT_OK(kvmem_layout_checksum(layouts[i], some_blocks, NUM(some_blocks), KVMEM_TIMEOUT_FOREVER,
                                        expected, ERR));
        EXPECT_OK(kvmem_layout_checksum(layouts[i], some_blocks, NUM(some_blocks), PATIENCE, found, ERR));
        CHECK_BYTES(found, expected, sizeof(expected));
        EXPECT_MESSAGE(KVMEM_STATUS_TIMED_OUT, "0 of 5 blocks have checksums",
                       kvmem_layout_checksum(layouts[i], some_blocks, NUM(some_blocks), 0, found, ERR));
        CHECK_BYTES(found, expected, sizeof(expected));
    }
}

/* 24 blocks of 1 MiB, which several threads read. */
TEST(many_bytes_are_read_by_several_threads) {
    OPENED(kv_side, side, REF(WITH(kv_config(&kv_kinds[2]), it.num_blocks = 24, it.num_layers = 4,
                                   it.page_size = 64, it.inner_dim = 1024)), NULL, 3);
    check_checksums(side.layout, &side);
}

TEST(files_have_the_same_checksums) {
    static const struct {
        kvmem_layout_config (*config)(const kv_kind *);
        uint64_t flags;
    } files[] = {{kv_config, KVMEM_DISK_BUFFERED}, {kv_aligned_config, 0}};
    SCRATCH(directory);
    for (size_t i = 0; i < NUM(files) * KV_NUM_KINDS; i++) {
        const kvmem_layout_config config = files[i / KV_NUM_KINDS].config(&kv_kinds[i % KV_NUM_KINDS]);
        OPENED(file_side, file, &config, NULL, &directory, files[i / KV_NUM_KINDS].flags, 4);
        check_checksums(file.model.layout, &file.model);
        file_side_check(&file);
    }
}

/* Direct I/O needs long ranges, so the blocks are read in the order of the file. */
TEST(files_of_any_order_have_the_same_checksums) {
    static const char *const orders[] = {"L/OBHNC", "LOBNHC", "LO/BHNC", "OBHLNC"};
    for (size_t i = 0; i < NUM(orders); i++) {
        /* Each head of a block is 4 KiB, and so is each token. */
        const kvmem_layout_config plain =
            WITH(kv_config(&kv_kinds[0]), it.page_size = 8, it.num_heads = 8, it.inner_dim = 2048);
        const kvmem_layout_config config = WITH(plain, it.order = orders[i]);
        OPENED(kv_side, side, &plain, NULL, 5);
        OWNED(kvmem_layout) host = layout_allocate_system(&config);
        OWNED(kvmem_layout) file = temporary_disk_layout(&config, NULL, 0);
        kv_run(side.layout, host, &all_layers);
        kv_run(host, file, &all_layers);
        uint32_t from[NUM(pairs)], to[NUM(pairs)], expected[NUM(pairs)], found[NUM(pairs)];
        for (size_t k = 0; k < NUM(pairs); k++) {
            from[k] = pairs[k].source;
            to[k] = pairs[k].destination;
        }
        EXPECT_OK(kvmem_layout_checksum(host, from, NUM(from), KVMEM_TIMEOUT_FOREVER, expected, ERR));
        EXPECT_OK(kvmem_layout_checksum(file, to, NUM(to), KVMEM_TIMEOUT_FOREVER, found, ERR));
        CHECK_BYTES(found, expected, sizeof(found));
        CHECK_EQ(found[1], crc_of_block(&side, 6, 0, 3));
    }
}

/* The order of a layout with one block may omit the axis of blocks. */
TEST(the_only_block_of_a_file_may_be_given_several_times) {
    static const kvmem_block_pair first = {0, 0};
    static const kv_move move = {&first, 1, 0, 0, 2};
    const kvmem_layout_config config =
        OPTIONS(kvmem_layout_config, it.num_blocks = 1, it.num_layers = 2, it.outer_dim = 1, it.page_size = 8,
                it.inner_dim = 2048, it.dtype_width = 2, it.order = "NLC");
    OWNED(kvmem_layout) host = layout_allocate_system(&config);
    OWNED(kvmem_layout) file = temporary_disk_layout(&config, NULL, 0);
    kv_run(host, file, &move);
    const uint32_t blocks[3] = {0};
    uint32_t expected[3], found[3];
    EXPECT_OK(kvmem_layout_checksum(host, blocks, NUM(blocks), KVMEM_TIMEOUT_FOREVER, expected, ERR));
    EXPECT_OK(kvmem_layout_checksum(file, blocks, NUM(blocks), KVMEM_TIMEOUT_FOREVER, found, ERR));
    CHECK_BYTES(found, expected, sizeof(found));
}

/* More blocks than the library reads at a time. */
TEST(a_large_file_is_read_part_by_part) {
    kvmem_layout_config config = WITH(kv_aligned_config(&kv_kinds[0]), it.num_blocks = 40);
    config.page_size *= 32;
    uint32_t blocks[40], found[40], expected[40];
    OPENED(kv_side, side, &config, NULL, 5);
    OWNED(kvmem_layout) file = temporary_disk_layout(&config, NULL, 0);
    kvmem_block_pair all[40];
    for (uint32_t i = 0; i < NUM(blocks); i++) {
        blocks[i] = 39 - i;
        all[i] = (kvmem_block_pair){i, i};
    }
    const kv_move move = {all, NUM(all), 0, 0, config.num_layers};
    kv_run(side.layout, file, &move);
    EXPECT_OK(kvmem_layout_checksum(side.layout, blocks, NUM(blocks), KVMEM_TIMEOUT_FOREVER, expected, ERR));
    EXPECT_OK(kvmem_layout_checksum(file, blocks, NUM(blocks), KVMEM_TIMEOUT_FOREVER, found, ERR));
    CHECK_BYTES(found, expected, sizeof(found));
}

TEST(invalid_input_fails) {
    static const uint32_t outside[] = {0, 7};
    OPENED(kv_side, side, REF(kv_config(&kv_kinds[0])), NULL, 1);
    uint32_t checksums[2] = {11, 22};
    EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_RANGE, "blocks[1] is 7; the layout has 7 blocks",
                   kvmem_layout_checksum(side.layout, outside, 2, KVMEM_TIMEOUT_FOREVER, checksums, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "num_blocks is 0",
                   kvmem_layout_checksum(side.layout, outside, 0, KVMEM_TIMEOUT_FOREVER, checksums, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "blocks is NULL",
                   kvmem_layout_checksum(side.layout, NULL, 2, KVMEM_TIMEOUT_FOREVER, checksums, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "checksums is NULL",
                   kvmem_layout_checksum(side.layout, outside, 2, KVMEM_TIMEOUT_FOREVER, NULL, ERR));
    CHECK_EQ(checksums[0], 11);
    CHECK_EQ(checksums[1], 22);
}

/* Runs a transfer twice, and returns the result of both runs, which its completion must repeat. */
static kvmem_status run(const kvmem_layout *source, const kvmem_layout *destination, const kv_move *move,
                        const uint32_t *checksums, uint64_t flags, const char *part) {
    kv_job options = WITH(kv_job_of(move), it.run.checksums = checksums, KV_SET_FLAGS(flags));
    OWN(kvmem_queue, queue, kvmem_queue_create);
    options.transfer.queue = queue;
    OWN(kvmem_transfer, transfer, kv_prepare, source, destination, &options);
    kvmem_status first = KVMEM_STATUS_OK;
    for (int i = 0; i < 2; i++) {
        EXPECT_OK(kvmem_transfer_submit(transfer, NULL, ERR));
        const kvmem_completion completion = next_completion(queue);
        EXPECT_MESSAGE(completion.status, part, kvmem_transfer_wait(transfer, PATIENCE, ERR));
        CHECK(i == 0 || completion.status == first);
        first = completion.status;
    }
    return first;
}

static void verify_between(const kvmem_layout *source, kv_side *from, const kvmem_layout *destination,
                           const kv_move *move) {
    uint32_t checksums[NUM(pairs)];
    for (size_t i = 0; i < move->num_pairs; i++)
        checksums[i] = crc_of_block(from, move->pairs[i].source, move->source_layer, move->num_layers);
    CHECK_EQ(run(source, destination, move, checksums, 0, ""), KVMEM_STATUS_OK);
    CHECK_EQ(run(source, destination, move, NULL, KV_VERIFY, ""), KVMEM_STATUS_OK);
    checksums[1] ^= 1;
    checksums[2] ^= 0x80000000u;
    const char *const counted = TEXT("2 of %zu moved blocks are corrupt", move->num_pairs);
    CHECK_EQ(run(source, destination, move, checksums, 0, counted), KVMEM_STATUS_CORRUPT);
    const char *const named =
        TEXT("pair 1, source block %u and destination block %u, with CRC32C 0x%08x; expected 0x%08x",
             move->pairs[1].source, move->pairs[1].destination, checksums[1] ^ 1, checksums[1]);
    CHECK_EQ(run(source, destination, move, checksums, 0, named), KVMEM_STATUS_CORRUPT);
}

TEST(transfers_in_memory_are_verified) {
    static const kv_move moves[] = {
        {pairs, NUM(pairs), 0, 0, 3}, {pairs, NUM(pairs), 1, 0, 2}, {pairs, NUM(pairs), 0, 2, 1}};
    for (size_t i = 0; i < KV_NUM_KINDS * NUM(moves); i++) {
        const kv_move *move = &moves[i / KV_NUM_KINDS];
        KV_SIDES(source, destination, kv_config(&kv_kinds[0]), kv_config(&kv_kinds[i % KV_NUM_KINDS]));
        verify_between(source.layout, &source, destination.layout, move);
        kv_expect_moved(&destination, &source, move);
        kv_side_check(&source);
        kv_side_check(&destination);
    }
}

TEST(transfers_from_and_to_files_are_verified) {
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[1]);
    OPENED(file_pair, pair, &config, &config, NULL, 0);
    for (int to_file = 1; to_file >= 0; to_file--) {
        kv_side *source = file_pair_source(&pair, to_file);
        kv_side *destination = file_pair_destination(&pair, to_file);
        verify_between(source->layout, source, destination->layout, &all_layers);
        file_pair_check_moved(&pair, to_file, &all_layers);
    }
}

static void refuse(const kv_side *source, const kv_side *destination, uint64_t flags,
                   const uint32_t *checksums, kvmem_status status, const char *part) {
    REFUSE(status, part, kv_prepare, source->layout, destination->layout,
           REF(WITH(kv_job_of(&all_layers), it.run.checksums = checksums, KV_SET_FLAGS(flags))));
}

TEST(transfers_that_cannot_be_verified_fail) {
    static const uint32_t checksums[NUM(pairs)];
    KV_SIDES(source, destination, kv_config(&kv_kinds[0]), kv_config(&kv_kinds[0]));
    refuse(&source, &destination, KV_VERIFY | KVMEM_TRANSFER_BY_LAYER, NULL,
           KVMEM_STATUS_UNSUPPORTED, "by layer");
    refuse(&source, &destination, KVMEM_TRANSFER_BY_LAYER, checksums, KVMEM_STATUS_UNSUPPORTED, "by layer");
    refuse(&source, &destination, KV_VERIFY, checksums, KVMEM_STATUS_INVALID_ARGUMENT,
           "one of the two");
    refuse(&source, &destination, 0, (const uint32_t *)((uintptr_t)checksums + 1),
           KVMEM_STATUS_INVALID_ARGUMENT, "not aligned");
}

/* The caller destroys the transfer, which keeps what it needs and still reports the result. */
TEST(a_transfer_destroyed_during_its_run_is_verified) {
    static const uint32_t wrong[NUM(pairs)];
    KV_SIDES(source, destination, kv_config(&kv_kinds[0]), kv_config(&kv_kinds[0]));
    OWN(kvmem_queue, queue, kvmem_queue_create);
    GET(kvmem_transfer *, transfer, kv_prepare, source.layout, destination.layout,
        KV_JOB(&all_layers, it.run.checksums = wrong, it.transfer.queue = queue));
    EXPECT_OK(kvmem_transfer_submit(transfer, NULL, ERR));
    kvmem_transfer_destroy(transfer);
    const kvmem_completion completion = next_completion(queue);
    CHECK_EQ(completion.status, KVMEM_STATUS_CORRUPT);
    CHECK_EQ(completion.bytes, 0);
}

/* Layer by layer, and in each layer keys before values, wherever they are located. */
TEST(pieces_of_any_order_have_checksums) {
    static const char *const orders[] = {"LO/BNHC", "OL/BHNC", "OBLNHC", "OLBNHC", "LBONHC", "BOLHNC"};
    for (size_t i = 0; i < NUM(orders); i++) {
        const kvmem_layout_config config = WITH(kv_config(&kv_kinds[0]), it.num_heads = 2,
                                                it.order = orders[i], it.block_stride = i == 0 ? 100 : 0);
        OWNED(kvmem_layout) layout = layout_allocate_system(&config);
        uint32_t expected[7] = {0}, found[7] = {0};
        uint32_t blocks[7];
        for (uint32_t block = 0; block < 7; block++) {
            blocks[block] = block;
            for (uint64_t layer = 0; layer < config.num_layers; layer++) {
                for (uint64_t outer = 0; outer < config.outer_dim; outer++) {
                    GET(kvmem_block, piece, kvmem_layout_get_block, layout, block, layer, outer);
                    unsigned char *bytes = (unsigned char *)(uintptr_t)piece.address;
                    memset(bytes, (int)(1 + block * 6 + layer * 2 + outer), piece.size);
                    expected[block] = crc_append(expected[block], bytes, piece.size);
                }
            }
        }
        EXPECT_OK(kvmem_layout_checksum(layout, blocks, 7, KVMEM_TIMEOUT_FOREVER, found, ERR));
        CHECK_BYTES(found, expected, sizeof(found));
    }
}

/* Blocks with the same elements, in which each row has its own bytes. The checksum does not depend on the
   positions of rows, nor on separate regions of tokens and heads. A transfer preserves it for any two
   orders. */
TEST(the_order_makes_no_difference) {
    static const char *const orders[] = {"BLONHC", "BLOHNC", "L/BHNOC", "OBNLHC", "LH/BONC", "LN/BOHC",
                                         "LONH/BC"};
    static const kvmem_block_pair pair = {5, 2};
    static const kv_move move = {&pair, 1, 0, 0, 3};
    uint32_t expected = 0;
    const kvmem_layout_config plain = WITH(kv_config(&kv_kinds[2]), it.num_heads = 2);
    for (size_t i = 0; i < NUM(orders); i++) {
        const kvmem_layout_config config = WITH(kv_config(&kv_kinds[0]), it.num_heads = 2,
                                                it.order = orders[i]);
        OWNED(kvmem_layout) layout = layout_allocate_system(&config);
        const uint32_t block = 5, there = 2;
        uint32_t checksum = 0;
        for (uint64_t index = 0; index < config.num_layers * config.outer_dim * config.page_size * 2; index++) {
            const uint64_t head = index % 2, token = index / 2 % config.page_size;
            const uint64_t outer = index / 2 / config.page_size % config.outer_dim;
            const uint64_t layer = index / 2 / config.page_size / config.outer_dim;
            GET(kvmem_block, row, kvmem_layout_get_row, layout, block, layer, outer, token, head);
            memset((void *)(uintptr_t)row.address, (int)(index + 1), row.size);
            checksum = crc_append(checksum, (const unsigned char *)(uintptr_t)row.address, row.size);
        }
        CHECK(i == 0 || checksum == expected);
        expected = checksum;
        GET(uint32_t, found, kvmem_layout_checksum, layout, &block, 1, KVMEM_TIMEOUT_FOREVER);
        CHECK_EQ(found, expected);
        OWNED(kvmem_layout) other = layout_allocate_system(&plain);
        kv_run(layout, other, &move);
        GET(uint32_t, moved, kvmem_layout_checksum, other, &there, 1, KVMEM_TIMEOUT_FOREVER);
        CHECK_EQ(moved, expected);
        OWNED(kvmem_layout) back = layout_allocate_system(&config);
        static const kvmem_block_pair home = {2, 6};
        static const kv_move again = {&home, 1, 0, 0, 3};
        kv_run(other, back, &again);
        const uint32_t last = 6;
        GET(uint32_t, returned, kvmem_layout_checksum, back, &last, 1, KVMEM_TIMEOUT_FOREVER);
        CHECK_EQ(returned, expected);
    }
}
