// SPDX-License-Identifier: Apache-2.0
// Epochs of the blocks of one process: raised, expected, and refused where a run cannot compare them.
#include "harness.h"

#include <stdatomic.h>

#define PAIRS 4

static const kvmem_block_pair pairs[PAIRS] = {{6, 0}, {2, 5}, {4, 1}, {6, 3}};
static const kv_move move = {pairs, PAIRS, 0, 0, 3};

static uint64_t raise_epoch(kvmem_layout *layout, uint32_t block) {
    uint64_t epoch = 0;
    EXPECT_OK(kvmem_layout_raise_epochs(layout, &block, 1, &epoch, ERR));
    return epoch;
}

static void expect_epochs(const kvmem_layout *layout, const uint64_t *expected, size_t count) {
    const uint32_t blocks[] = {0, 1, 2, 3, 4, 5, 6};
    uint64_t found[NUM(blocks)];
    EXPECT_OK(kvmem_layout_get_epochs(layout, blocks, count, found, ERR));
    for (size_t i = 0; i < count; i++) CHECK_EQ(found[i], expected[i]);
}

TEST(epochs_begin_at_zero_and_are_raised_by_one) {
    OWNED(kvmem_layout) layout = layout_allocate_system(REF(kv_config(&kv_kinds[1])));
    EXPECT_OK(kvmem_layout_create_epochs(layout, NULL, ERR));
    expect_epochs(layout, (uint64_t[7]){0}, 7);
    const uint32_t blocks[] = {5, 0, 5};
    uint64_t raised[3];
    EXPECT_OK(kvmem_layout_raise_epochs(layout, blocks, 3, raised, ERR));
    CHECK(raised[0] == 1 && raised[1] == 1 && raised[2] == 2);
    EXPECT_OK(kvmem_layout_raise_epochs(layout, blocks, 1, NULL, ERR));
    EXPECT_OK(kvmem_layout_raise_epochs(layout, NULL, 0, NULL, ERR));
    expect_epochs(layout, (uint64_t[7]){1, 0, 0, 0, 0, 3, 0}, 7);
    EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_RANGE, "blocks[1] is 7; the layout has 7 blocks, give ids below that",
                   kvmem_layout_raise_epochs(layout,
           ((uint32_t[]){0, 7}), 2, raised, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "epochs is not aligned",
                   kvmem_layout_raise_epochs(layout, blocks, 1, (uint64_t *)((char *)raised + 1), ERR));
    expect_epochs(layout, (uint64_t[7]){1, 0, 0, 0, 0, 3, 0}, 7);
}

/* The engine increments its own words. */
TEST(a_table_of_the_caller_keeps_its_contents) {
    OWNED(kvmem_layout) layout = layout_allocate_system(REF(kv_config(&kv_kinds[0])));
    static _Atomic uint64_t table[7] = {3, 4};
    OWNED(kvmem_region) region = region_adopt((void *)table, sizeof(table));
    EXPECT_OK(kvmem_layout_create_epochs(layout, region, ERR));
    atomic_fetch_add(&table[1], 1);
    expect_epochs(layout, (uint64_t[]){3, 5}, 2);
    CHECK_EQ(raise_epoch(layout, 1), 6);
    CHECK_EQ(atomic_load(&table[1]), 6);
}

TEST(a_table_that_cannot_be_one_is_refused) {
    OWNED(kvmem_layout) layout = layout_allocate_system(REF(kv_config(&kv_kinds[0])));
    static uint64_t table[8];
    OWNED(kvmem_region) small = region_adopt(table, 7 * 8 - 1);
    EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_RANGE, "has 55 bytes, and 7 blocks need 56",
                   kvmem_layout_create_epochs(layout, small, ERR));
    OWNED(kvmem_region) odd = region_adopt((char *)table + 4, 7 * 8);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "multiple of 8 bytes",
                   kvmem_layout_create_epochs(layout, odd, ERR));
    OWN(kvmem_region, fixed, kvmem_region_adopt_host,
        REF(OPTIONS(kvmem_adopt_options, it.address = table, it.size = sizeof(table), it.flags = KVMEM_ADOPT_READ_ONLY)));
    EXPECT_MESSAGE(KVMEM_STATUS_PERMISSION_DENIED, "create epochs",
                   kvmem_layout_create_epochs(layout, fixed, ERR));
    OWNED(kvmem_region) file = region_create_temporary_file(4096);
    EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "this region is disk memory",
                   kvmem_layout_create_epochs(layout, file, ERR));
    OWN(kvmem_region, of_blocks, kvmem_layout_get_region, layout, 0);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "memory of the layout's blocks",
                   kvmem_layout_create_epochs(layout, of_blocks, ERR));
    const uint32_t block = 0;
    uint64_t epoch = 0;
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "call kvmem_layout_create_epochs first",
                   kvmem_layout_raise_epochs(layout, &block, 1,
           &epoch, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "call kvmem_layout_create_epochs first",
                   kvmem_layout_get_epochs(layout, &block, 1, &epoch, ERR));
    EXPECT_OK(kvmem_layout_create_epochs(layout, NULL, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_ALREADY_EXISTS, "raise them",
                   kvmem_layout_create_epochs(layout, NULL, ERR));
}

TEST(a_run_moves_blocks_of_the_expected_epochs) {
    KV_SIDES(source, destination, kv_config(&kv_kinds[0]), kv_config(&kv_kinds[1]));
    EXPECT_OK(kvmem_layout_create_epochs(source.layout, NULL, ERR));
    const uint64_t epochs[PAIRS] = {raise_epoch(source.layout, 6), 0, 0, 1};
    OWN(kvmem_transfer, transfer, kv_prepare, source.layout, destination.layout, KV_JOB(&move, it.run.epochs = epochs));
    for (int run = 0; run < 2; run++) RUN(transfer);
    kv_expect_mismatches(transfer, NULL, 0);
    kv_side_check_moved(&destination, &source, &move);
}

/* The run ends before it writes, and names the pairs of all blocks that were raised. */
TEST(a_run_of_reused_blocks_ends_stale_and_moves_nothing) {
    KV_SIDES(source, destination, kv_config(&kv_kinds[0]), kv_config(&kv_kinds[1]));
    EXPECT_OK(kvmem_layout_create_epochs(source.layout, NULL, ERR));
    OWN(kvmem_queue, queue, kvmem_queue_create);
    const uint64_t epochs[PAIRS] = {0};
    OWN(kvmem_transfer, transfer, kv_prepare, source.layout, destination.layout,
        KV_JOB(&move, it.transfer.queue = queue, it.run.epochs = epochs));
    raise_epoch(source.layout, 6);
    raise_epoch(source.layout, 4);
    for (int run = 0; run < 2; run++) {
        RUN_ENDS(KVMEM_STATUS_STALE, "3 of 4 source blocks have other epochs than expected; the first, of pair 0, has epoch 1, and 0 was expected",
                 transfer);
        kv_expect_mismatches(transfer, (uint64_t[]){0, 2, 3}, 3);
    }
    kv_side_check(&destination);
    /* With the new epochs the same blocks move. */
    const uint64_t now[PAIRS] = {1, 0, 1, 1};
    EXPECT_OK(kvmem_transfer_submit(transfer, &KV_JOB(&move, it.run.epochs = now)->run, ERR));
    EXPECT_OK(kvmem_transfer_wait(transfer, PATIENCE, ERR));
    kv_expect_mismatches(transfer, NULL, 0);
    kv_side_check_moved(&destination, &source, &move);
}

/* What was moved is of another use, so a wrong checksum is not reported as damage. */
TEST(damaged_bytes_of_reused_blocks_are_stale) {
    KV_SIDES(source, destination, kv_config(&kv_kinds[0]), kv_config(&kv_kinds[1]));
    EXPECT_OK(kvmem_layout_create_epochs(source.layout, NULL, ERR));
    const uint64_t epochs[PAIRS] = {0};
    uint32_t checksums[PAIRS] = {0};
    OWN(kvmem_transfer, transfer, kv_prepare, source.layout, destination.layout,
        KV_JOB(&move, it.run.epochs = epochs, it.run.checksums = checksums));
    RUN_ENDS(KVMEM_STATUS_CORRUPT, "", transfer);
    raise_epoch(source.layout, 2);
    RUN_ENDS(KVMEM_STATUS_STALE, "", transfer);
    kv_expect_mismatches(transfer, (uint64_t[]){1}, 1);
}

/* By layer, and compared with the source. */
TEST(each_kind_of_run_of_reused_blocks_is_stale) {
    const kv_job kinds[] = {*KV_JOB(&move, it.transfer.flags = KVMEM_TRANSFER_BY_LAYER), *KV_JOB(&move, it.run.flags = KVMEM_SUBMIT_VERIFY)};
    for (size_t i = 0; i < NUM(kinds); i++) {
        KV_SIDES(source, destination, kv_config(&kv_kinds[0]), kv_config(&kv_kinds[1]));
        EXPECT_OK(kvmem_layout_create_epochs(source.layout, NULL, ERR));
        const uint64_t epochs[PAIRS] = {0};
        OWN(kvmem_transfer, transfer, kv_prepare, source.layout, destination.layout, REF(WITH(kinds[i], it.run.epochs = epochs)));
        RUN(transfer);
        kv_side_check_moved(&destination, &source, &move);
        raise_epoch(source.layout, 2);
        RUN_ENDS(KVMEM_STATUS_STALE, "the first, of pair 1, has epoch 1", transfer);
        kv_expect_mismatches(transfer, (uint64_t[]){1}, 1);
    }
}

/* Tokens of three blocks move to two of another size, and the epochs are those of the blocks. */
TEST(tokens_of_reused_blocks_are_stale) {
    const kvmem_layout_config from = OPTIONS(kvmem_layout_config, it.num_blocks = 7, it.num_layers = 2, it.outer_dim = 1, it.page_size = 2,
                                             it.inner_dim = 8, it.dtype_width = 1, it.order = "BLONHC");
    const kvmem_layout_config to = WITH(from, it.page_size = 3);
    KV_SIDES(source, destination, from, to);
    EXPECT_OK(kvmem_layout_create_epochs(source.layout, NULL, ERR));
    const uint32_t blocks[] = {6, 2, 4}, others[] = {0, 5};
    const kvmem_block_table read = {blocks, 3, 0, 1}, written = {others, 2, 0, 1};
    uint64_t epochs[] = {raise_epoch(source.layout, 6), 0, 0};
    const kvmem_submit_options run = OPTIONS(kvmem_submit_options, it.source_table = &read, it.destination_table = &written, it.num_tokens = 6,
                                             it.epochs = epochs);
    OWN(kvmem_transfer, transfer, kvmem_transfer_create, source.layout, destination.layout, NULL);
    EXPECT_OK(kvmem_transfer_submit(transfer, &run, ERR));
    EXPECT_OK(kvmem_transfer_wait(transfer, PATIENCE, ERR));
    kv_expect_mismatches(transfer, NULL, 0);
    raise_epoch(source.layout, 4);
    raise_epoch(source.layout, 6);
    EXPECT_OK(kvmem_transfer_submit(transfer, &run, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_STALE, "2 of 3 source blocks have other epochs than expected; the first, of entry 0, has epoch 2, and 1 was expected",
                   kvmem_transfer_wait(transfer, PATIENCE, ERR));
    kv_expect_mismatches(transfer, (uint64_t[]){0, 2}, 2);
    epochs[0] = 2;
    epochs[2] = 1;
    EXPECT_OK(kvmem_transfer_submit(transfer, &run, ERR));
    EXPECT_OK(kvmem_transfer_wait(transfer, PATIENCE, ERR));
}

/* Entries before the first token that is moved, after the last, and those that a step passes over, are not compared. */
TEST(only_blocks_of_which_tokens_are_moved_are_compared) {
    static const struct {
        uint64_t first_token, token_step, num_tokens;
        uint32_t moved; /* bits of entries */
    } rows[] = {{0, 1, 1, 1}, {3, 1, 2, 6}, {2, 1, 4, 6}, {2, 2, 2, 6}, {0, 4, 2, 5}, {1, 4, 2, 5}, {7, 1, 1, 8}, {0, 1, 8, 15}};
    const kvmem_layout_config from = OPTIONS(kvmem_layout_config, it.num_blocks = 7, it.num_layers = 2, it.outer_dim = 1, it.page_size = 2,
                                             it.inner_dim = 8, it.dtype_width = 1, it.order = "BLONHC");
    const kvmem_layout_config to = WITH(from, it.page_size = 3);
    KV_SIDES(source, destination, from, to);
    EXPECT_OK(kvmem_layout_create_epochs(source.layout, NULL, ERR));
    OWN(kvmem_transfer, transfer, kvmem_transfer_create, source.layout, destination.layout, NULL);
    static const uint32_t blocks[] = {6, 2, 4, 1}, others[] = {0, 5, 3};
    for (size_t row = 0; row < NUM(rows); row++) {
        const kvmem_block_table read = {blocks, NUM(blocks), rows[row].first_token, rows[row].token_step}, written = {others, NUM(others), 0, 1};
        uint64_t epochs[NUM(blocks)];
        const kvmem_submit_options run = OPTIONS(kvmem_submit_options, it.source_table = &read, it.destination_table = &written,
                                                 it.num_tokens = rows[row].num_tokens, it.epochs = epochs);
        for (uint64_t stale = 0; stale < NUM(blocks); stale++) {
            EXPECT_OK(kvmem_layout_get_epochs(source.layout, blocks, NUM(blocks), epochs, ERR));
            raise_epoch(source.layout, blocks[stale]);
            EXPECT_OK(kvmem_transfer_submit(transfer, &run, ERR));
            const bool is_moved = rows[row].moved >> stale & 1;
            EXPECT(is_moved ? KVMEM_STATUS_STALE : KVMEM_STATUS_OK, kvmem_transfer_wait(transfer, PATIENCE, ERR));
            kv_expect_mismatches(transfer, &stale, is_moved);
        }
    }
}

static void refuse(kvmem_status status, const char *part, const kv_side *source, const kv_side *destination, const kv_job *job) {
    REFUSE(status, part, kv_prepare, source->layout, destination->layout, job);
}

TEST(epochs_that_cannot_be_compared_are_refused) {
    KV_SIDES(source, destination, kv_config(&kv_kinds[0]), kv_config(&kv_kinds[1]));
    const uint64_t epochs[PAIRS] = {0};
    const kv_job job = *KV_JOB(&move, it.run.epochs = epochs);
    refuse(KVMEM_STATUS_INVALID_STATE, "call kvmem_layout_create_epochs first", &source, &destination, &job);
    EXPECT_OK(kvmem_layout_create_epochs(source.layout, NULL, ERR));
    refuse(KVMEM_STATUS_INVALID_STATE, "the layout has no epochs", &destination, &source, &job);
    static const kvmem_block_pair outside[] = {{7, 0}};
    refuse(KVMEM_STATUS_OUT_OF_RANGE, "7", &source, &destination,
           KV_JOB((&(kv_move){outside, 1, 0, 0, 3}), it.run.epochs = epochs));
}
