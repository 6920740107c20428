// SPDX-License-Identifier: Apache-2.0
// Transfers between local layouts, byte by byte: the right bytes move, and nothing else changes.
#include "harness.h"

/* Scattered ids on both sides, with adjacent pairs that can be merged and some that cannot. */
static const kvmem_block_pair scattered[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}, {4, 4}, {2, 1}};

static void copy_between(const kvmem_layout_config *from, const kvmem_layout_config *to,
                         const kv_move *move) {
    OPENED(kv_side, source, from, NULL, 11);
    OPENED(kv_side, destination, to, NULL, 22);
    const kvmem_transfer_info info = kv_run(source.layout, destination.layout, move);
    kv_side_check_moved(&destination, &source, move);
    kv_side_check(&source);
    const uint64_t pieces = move->num_pairs * move->num_layers * from->outer_dim;
    CHECK_EQ(info.method, KVMEM_METHOD_MEMCPY);
    CHECK_EQ(info.num_pieces, pieces);
    CHECK_EQ(info.bytes, pieces * kv_piece_size(from));
    CHECK(info.num_moves >= 1 && info.num_moves <= pieces);
    CHECK_EQ(info.num_requests, 0);
}

TEST(every_pair_of_kinds_copies) {
    const kv_move all_layers = {scattered, NUM(scattered), 0, 0, 3};
    EACH_TWO_KV_KINDS(from, to) copy_between(REF(kv_config(from)), REF(kv_config(to)), &all_layers);
}

TEST(layer_ranges_move_to_other_layers) {
    static const struct {
        uint64_t source, destination, count;
    } ranges[] = {{0, 0, 1}, {2, 2, 1}, {0, 2, 1}, {2, 0, 1}, {0, 1, 2}, {1, 0, 2}, {1, 1, 2}};
    EACH_TWO_KV_KINDS(from, to) {
        for (size_t i = 0; i < NUM(ranges); i++) {
            const kv_move move = {scattered, NUM(scattered), ranges[i].source, ranges[i].destination,
                                  ranges[i].count};
            copy_between(REF(kv_config(from)), REF(kv_config(to)), &move);
        }
    }
}

TEST(the_numbers_of_blocks_and_layers_may_differ) {
    static const kvmem_block_pair pairs[] = {{6, 30}, {0, 31}};
    const kv_move move = {pairs, NUM(pairs), 1, 6, 2};
    EACH_TWO_KV_KINDS(from, to) {
        const kvmem_layout_config large = WITH(kv_config(to), it.num_blocks = 32, it.num_layers = 8);
        copy_between(REF(kv_config(from)), &large, &move);
    }
}

TEST(padding_may_differ_and_is_unchanged) {
    static const uint64_t alignments[] = {1, 64, 512};
    const kv_move move = {scattered, NUM(scattered), 0, 0, 3};
    EACH_TWO_KV_KINDS(from, to) {
        for (size_t i = 0; i < NUM(alignments) * NUM(alignments); i++) {
            copy_between(REF(WITH(kv_config(from), it.alignment = alignments[i / NUM(alignments)])),
                         REF(WITH(kv_config(to), it.alignment = alignments[i % NUM(alignments)])), &move);
        }
    }
}

TEST(one_source_may_have_many_destinations) {
    static const kvmem_block_pair fan_out[] = {{3, 0}, {3, 1}, {3, 2}, {3, 6}};
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    const kv_move move = {fan_out, NUM(fan_out), 0, 0, 3};
    copy_between(&config, &config, &move);
}

TEST(adjacent_blocks_merge_into_one_copy) {
    const kv_move move = KV_MOVE(3, {2, 3}, {3, 4}, {4, 5});
    KV_SIDES(source, destination, kv_config(&kv_kinds[0]), kv_config(&kv_kinds[0]));
    const kvmem_transfer_info info = kv_run(source.layout, destination.layout, &move);
    CHECK_EQ(info.num_pieces, 3 * 3 * 2);
    CHECK_EQ(info.num_moves, 1);
    kv_side_check_moved(&destination, &source, &move);
}

/* Blocks may move within one layout if none is both read and written. */
TEST(a_layout_copies_to_itself) {
    static const kvmem_block_pair pairs[] = {{0, 6}, {1, 5}};
    const kv_move move = {pairs, NUM(pairs), 0, 0, 3};
    EACH_KV_KIND(kind) {
        OPENED(kv_side, side, REF(kv_config(kind)), NULL, 3);
        kv_run(side.layout, side.layout, &move);
        kv_side_check_moved(&side, &side, &move);
    }
}

TEST(a_second_submit_copies_again) {
    const kv_move move = {scattered, NUM(scattered), 0, 0, 3};
    const kv_job options = kv_job_of(&move);
    KV_SIDES(source, destination, kv_config(&kv_kinds[2]), kv_config(&kv_kinds[2]));
    OWN(kvmem_transfer, transfer, kv_prepare, source.layout, destination.layout, &options);
    for (uint32_t round = 0; round < 50; round++) {
        kv_fill(source.memory, source.size, round);
        memcpy(source.expected, source.memory, source.size);
        RUN(transfer);
        kv_side_check_moved(&destination, &source, &move);
    }
}

/* Large enough to be copied by several threads, with ids in reverse order. */
TEST(large_copies_are_correct) {
    kvmem_layout_config from = WITH(kv_config(&kv_kinds[0]), it.num_blocks = 64, it.page_size = 16,
                                    it.inner_dim = 1024, it.num_layers = 4);
    kvmem_layout_config to = from;
    to.order = KVMEM_ORDER_LAYER_SEPARATE_OUTER_FIRST;
    kvmem_block_pair reversed[64];
    for (uint32_t i = 0; i < NUM(reversed); i++) reversed[i] = (kvmem_block_pair){i, 63 - i};
    const kv_move move = {reversed, NUM(reversed), 0, 0, 4};
    copy_between(&from, &to, &move);
    copy_between(&to, &from, &move);
    copy_between(&from, &from, &move);
}
