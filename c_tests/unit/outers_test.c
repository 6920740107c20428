// SPDX-License-Identifier: Apache-2.0
// Transfers of some outer slots (keys or values alone) in memory and from and to files, byte by byte: the
// other slot is unchanged, and invalid slots fail.
#include "harness.h"

static const kvmem_block_pair scattered[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}, {4, 4}, {2, 1}};
static const kv_move moves[] = {
    {scattered, NUM(scattered), 0, 0, 3},
    {scattered, NUM(scattered), 2, 0, 1},
    {scattered, NUM(scattered), 0, 1, 2},
};
/* Keys, values, keys to the place of values, values to the place of keys, and both. */
static const kv_outers outers[] = {{0, 0, 1}, {1, 1, 1}, {0, 1, 1}, {1, 0, 1}, {0, 0, 2}};

static void check_info(const kvmem_transfer_info *info, const kv_side *source, const kv_move *move,
                       kv_outers slots) {
    CHECK_EQ(info->num_pieces, move->num_pairs * move->num_layers * slots.count);
    CHECK_EQ(info->bytes, info->num_pieces * kv_piece_size(&source->config));
    CHECK(info->num_moves >= 1 && info->num_moves <= info->num_pieces);
}

static void copy_between(const kvmem_layout_config *from, const kvmem_layout_config *to, const kv_move *move,
                         kv_outers slots, uint64_t flags) {
    OPENED(kv_side, source, from, NULL, 11);
    OPENED(kv_side, destination, to, NULL, 22);
    kv_job options = WITH(kv_outers_job(move, slots), it.transfer.flags = flags);
    const kvmem_transfer_info info = kv_run_with(source.layout, destination.layout, &options);
    kv_expect_outers_moved(&destination, &source, move, slots);
    kv_side_check(&destination);
    kv_side_check(&source);
    check_info(&info, &source, move, slots);
}

TEST(slots_move_between_every_pair_of_kinds) {
    static const uint64_t alignments[] = {1, 64};
    EACH_TWO_KV_KINDS(here, there) {
        for (size_t i = 0; i < NUM(outers) * NUM(moves); i++) {
            const kvmem_layout_config from = WITH(kv_config(here),
                                                  it.alignment = alignments[i % NUM(alignments)]);
            const kvmem_layout_config to = kv_config(there);
            const kv_move *move = &moves[i / NUM(outers)];
            copy_between(&from, &to, move, outers[i % NUM(outers)], 0);
            copy_between(&from, &to, move, outers[i % NUM(outers)], KVMEM_TRANSFER_BY_LAYER);
        }
    }
}

TEST(slots_move_to_and_from_layouts_of_keys) {
    EACH_TWO_KV_KINDS(here, there) {
        const kvmem_layout_config both = kv_config(here);
        const kvmem_layout_config one = WITH(kv_config(there), it.outer_dim = 1);
        copy_between(&both, &one, &moves[0], (kv_outers){1, 0, 1}, 0);
        copy_between(&one, &both, &moves[0], (kv_outers){0, 1, 1}, 0);
        copy_between(&one, &both, &moves[1], (kv_outers){0, 0, 1}, 0);
    }
}

/* The slots of a block do not overlap, so its keys can be copied over its values. */
TEST(keys_are_copied_over_values_of_the_same_block) {
    const kv_move move = KV_MOVE(3, {2, 2}, {3, 3}, {0, 6});
    const kv_outers keys_over_values = {0, 1, 1};
    EACH_KV_KIND(kind) {
        OPENED(kv_side, side, REF(kv_config(kind)), NULL, 3);
        kv_job options = kv_outers_job(&move, keys_over_values);
        kv_run_with(side.layout, side.layout, &options);
        kv_expect_outers_moved(&side, &side, &move, keys_over_values);
        kv_side_check(&side);
        options = kv_outers_job(&move, (kv_outers){1, 1, 1});
        REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "overlap", kv_prepare, side.layout, side.layout,
               &options);
        kv_side_check(&side);
    }
}

/* All blocks of layouts in which each slot is contiguous. */
TEST(a_contiguous_slot_is_one_copy_per_layer) {
    const kv_move move = KV_MOVE(3, {0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}, {6, 6});
    KV_SIDES(source, destination, kv_config(&kv_kinds[2]), kv_config(&kv_kinds[2]));
    const kv_job options = kv_outers_job(&move, outers[1]);
    CHECK_EQ(kv_run_with(source.layout, destination.layout, &options).num_moves, 3);
    kv_expect_outers_moved(&destination, &source, &move, outers[1]);
    kv_side_check(&destination);
}

/* Verifies by the checksums of the moved slot, taken before or by the transfer. The checksum of the other
   slot does not match. */
static void verify_between(kv_side *source, kv_side *destination, const kv_move *move, kv_outers slots) {
    uint32_t checksums[NUM(scattered)];
    for (size_t i = 0; i < move->num_pairs; i++)
        checksums[i] = crc_of_slots(source, move->pairs[i].source, move->source_layer, move->num_layers,
                                    slots.source, slots.count);
    kv_job options = WITH(kv_outers_job(move, slots), it.run.flags = KVMEM_SUBMIT_VERIFY);
    kv_run_with(source->layout, destination->layout, &options);
    options.run.flags = 0;
    options.run.checksums = checksums;
    kv_run_with(source->layout, destination->layout, &options);
    options.transfer.source_outer = 1 - slots.source;
    OWN(kvmem_transfer, transfer, kv_prepare, source->layout, destination->layout, &options);
    RUN_ENDS(KVMEM_STATUS_CORRUPT, "6 of 6 moved blocks", transfer);
    slots.source = options.transfer.source_outer;
    kv_expect_outers_moved(destination, source, move, slots);
}

TEST(the_checksums_of_the_moved_slots_are_compared) {
    for (size_t i = 0; i < KV_NUM_KINDS * NUM(moves) * 4; i++) {
        KV_SIDES(source, destination, kv_config(&kv_kinds[i % KV_NUM_KINDS]),
                 kv_config(&kv_kinds[i / KV_NUM_KINDS % KV_NUM_KINDS]));
        verify_between(&source, &destination, &moves[i / 4 % NUM(moves)], outers[i % 4]);
        kv_side_check(&source);
        kv_side_check(&destination);
    }
}

static void out_and_back(const kvmem_layout_config *memory, const kvmem_layout_config *disk, uint64_t flags,
                         uint32_t method, kv_outers slots) {
    OPENED(file_pair, pair, memory, disk, NULL, flags);
    for (int to_file = 1; to_file >= 0; to_file--) {
        kv_side *source = file_pair_source(&pair, to_file);
        kv_side *destination = file_pair_destination(&pair, to_file);
        const kv_move *move = &moves[to_file ? 0 : 2];
        const kv_job options =
            WITH(kv_outers_job(move, slots), it.transfer.method = method,
                 it.run.flags = to_file ? 0 : KVMEM_SUBMIT_VERIFY);
        const kvmem_transfer_info info = kv_run_with(source->layout, destination->layout, &options);
        check_info(&info, source, move, slots);
        kv_expect_outers_moved(destination, source, move, slots);
        file_pair_check(&pair);
    }
}

TEST(slots_move_to_files_and_back) {
    static const uint32_t methods[] = {KVMEM_METHOD_PREAD, 0, KVMEM_METHOD_URING};
    for (size_t i = 0; i < KV_NUM_KINDS * KV_NUM_KINDS * 2; i++) {
        const bool is_direct = i % 2 == 0;
        const kv_kind *here = &kv_kinds[i / 2 % KV_NUM_KINDS];
        const kv_kind *there = &kv_kinds[i / 2 / KV_NUM_KINDS];
        const kvmem_layout_config memory = is_direct ? kv_aligned_config(here) : kv_config(here);
        const kvmem_layout_config disk = is_direct ? kv_aligned_config(there) : kv_config(there);
        for (size_t method = 0; method < (can_test_io_uring() ? 3 : 2); method++)
            out_and_back(&memory, &disk, is_direct ? 0 : KVMEM_DISK_BUFFERED, methods[method],
                         outers[(i + method) % NUM(outers)]);
    }
}

static void refuse(const kv_side *source, const kv_side *destination, kv_outers slots, kvmem_status status,
                   const char *part) {
    const kv_job options = kv_outers_job(&moves[0], slots);
    REFUSE(status, part, kv_prepare, source->layout, destination->layout, &options);
    kv_side_check(source);
    kv_side_check(destination);
}

TEST(slots_that_do_not_exist_fail) {
    static const struct {
        kv_outers outers;
        kvmem_status status;
        const char *part;
    } wrong[] = {
        {{0, 0, 3}, KVMEM_STATUS_OUT_OF_RANGE, "3 outer slots from outer slot 0 on are outside the source"},
        {{1, 0, 2}, KVMEM_STATUS_OUT_OF_RANGE, "the source layout, which has 2"},
        {{UINT64_MAX, 0, 1}, KVMEM_STATUS_OUT_OF_RANGE, "the source layout, which has 2"},
        {{0, 1, 1}, KVMEM_STATUS_OUT_OF_RANGE, "the destination layout, which has 1"},
        {{0, UINT64_MAX, 1}, KVMEM_STATUS_OUT_OF_RANGE, "the destination layout, which has 1"},
        {{0, 0, UINT64_MAX}, KVMEM_STATUS_OUT_OF_RANGE, "outer slot"},
        {{0, 0, 2}, KVMEM_STATUS_OUT_OF_RANGE, "the destination layout, which has 1"},
        {{1, 0, 0}, KVMEM_STATUS_INVALID_ARGUMENT, "num_outers is 0, which means all"},
        {{0, 1, 0}, KVMEM_STATUS_INVALID_ARGUMENT, "num_outers is 0, which means all"},
        {{0, 0, 0}, KVMEM_STATUS_INVALID_ARGUMENT, "outer_dim is 2 in the source layout and 1"},
    };
    KV_SIDES(source, destination, kv_config(&kv_kinds[0]), WITH(kv_config(&kv_kinds[1]), it.outer_dim = 1));
    for (size_t i = 0; i < NUM(wrong); i++)
        refuse(&source, &destination, wrong[i].outers, wrong[i].status, wrong[i].part);
}
