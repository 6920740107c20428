// SPDX-License-Identifier: Apache-2.0
// Transfers of some outer slots, keys or values alone, from and to GPU memory: every path by name, layer by
// layer, verified, and between a file and a GPU. The other slot stays as it was.
#include "sides.h"
#include "stance.h"

static const kvmem_block_pair scattered[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}, {4, 4}, {2, 1}};
static const kvmem_block_pair in_order[] = {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}};
static const kv_move moves[] = {
    {scattered, NUM(scattered), 0, 0, 3},
    {in_order, NUM(in_order), 0, 0, 3},
    {in_order, NUM(in_order), 1, 0, 2},
    {scattered, NUM(scattered), 0, 2, 1},
};
/* Keys, values, one in the other's place, and both by their numbers. */
static const kv_outers outers[] = {{0, 0, 1}, {1, 1, 1}, {0, 1, 1}, {1, 0, 1}, {0, 0, 2}};
static const struct {
    place from, to;
} ways[] = {
    {PLACE_PINNED, PLACE_DEVICE},  {PLACE_DEVICE, PLACE_PINNED},  {PLACE_ADOPTED, PLACE_DEVICE},
    {PLACE_SPANNED, PLACE_PINNED}, {PLACE_SYSTEM, PLACE_ELASTIC},
};

/* Rows are refused where blocks lie together, and pageable memory takes few paths. */
static bool may_be_refused(uint32_t path, const side *source, const side *destination) {
    const bool has_pageable = source->place == PLACE_SYSTEM || destination->place == PLACE_SYSTEM;
    const bool on_devices = place_is_device(source->place) && place_is_device(destination->place);
    return path == KVMEM_PATH_CUDA_2D || (path != KVMEM_PATH_CUDA_COPY && has_pageable) ||
           (path == KVMEM_PATH_CUDA_STAGED && on_devices);
}

/* Whether the path was there; then every byte is as it must be. */
static bool move_by(side *source, side *destination, const kv_move *move, kv_outers slots,
                    const kvmem_transfer_options *options) {
    kvmem_transfer *transfer = NULL;
    const kvmem_status status = kvmem_transfer_create(source->model.layout, destination->model.layout,
                                                      options, &transfer, ERR);
    stance_check(__FILE__, __LINE__, "kvmem_transfer_create");
    if (status == KVMEM_STATUS_UNSUPPORTED && may_be_refused(options->path, source, destination)) {
        return false;
    }
    CHECK_EQ(status, KVMEM_STATUS_OK);
    RUN(transfer);
    GET(kvmem_transfer_info, info, kvmem_transfer_get_info, transfer);
    CHECK_EQ(info.num_pieces, move->num_pairs * move->num_layers * slots.count);
    CHECK_EQ(info.bytes, info.num_pieces * kv_piece_size(&source->model.config));
    CALL(kvmem_transfer_destroy(transfer));
    kv_expect_outers_moved(&destination->model, &source->model, move, slots);
    side_check(destination);
    side_check(source);
    return true;
}

/* All paths, the staged one in chunks that hold a part of a block's layers, a few blocks, or all. */
static size_t move_by_all(side *source, side *destination, const kv_move *move, kv_outers slots) {
    static const struct {
        uint32_t path;
        uint64_t staging_size;
    } paths[] = {
        {KVMEM_PATH_CUDA_COPY, 0},      {KVMEM_PATH_CUDA_BATCH, 0},        {KVMEM_PATH_CUDA_2D, 0},
        {KVMEM_PATH_CUDA_KERNEL, 0},    {KVMEM_PATH_CUDA_STAGED, 2000},    {KVMEM_PATH_CUDA_STAGED, 3 << 10},
        {KVMEM_PATH_CUDA_STAGED, 6000}, {KVMEM_PATH_CUDA_STAGED, 1 << 20},
    };
    size_t taken = 0;
    for (size_t i = 0; i < NUM(paths); i++) {
        side_refill(source, 100 + (uint32_t)i);
        kvmem_transfer_options options = WITH(kv_outers_options(move, slots), it.path = paths[i].path,
                                              it.staging_size = paths[i].staging_size,
                                              it.flags = i % 2 == 0 ? KVMEM_TRANSFER_BY_LAYER : 0);
        taken += move_by(source, destination, move, slots, &options);
    }
    return taken;
}

TEST(every_path_moves_the_slots_alone) {
    RETAIN_DEVICE(0);
    for (size_t kinds = 0; kinds < KV_NUM_KINDS * KV_NUM_KINDS; kinds++) {
        for (size_t way = 0; way < NUM(ways); way++) {
            const kvmem_layout_config from = side_config(&kv_kinds[kinds / KV_NUM_KINDS]);
            const kvmem_layout_config to = side_config(&kv_kinds[kinds % KV_NUM_KINDS]);
            OPENED(side, source, ways[way].from, 0, &from, NULL, 11);
            OPENED(side, destination, ways[way].to, 0, &to, NULL, 22);
            for (size_t i = 0; i < NUM(outers); i++) {
                CHECK(move_by_all(&source, &destination, &moves[(kinds + i) % NUM(moves)], outers[i]) > 0);
            }
        }
    }
}

TEST(layouts_of_keys_alone_take_part) {
    RETAIN_DEVICE(0);
    for (size_t kinds = 0; kinds < KV_NUM_KINDS * KV_NUM_KINDS; kinds++) {
        for (size_t way = 0; way < 2; way++) {
            kvmem_layout_config from = side_config(&kv_kinds[kinds / KV_NUM_KINDS]);
            kvmem_layout_config to = side_config(&kv_kinds[kinds % KV_NUM_KINDS]);
            *(way == 0 ? &from.outer_dim : &to.outer_dim) = 1;
            const kv_outers values = way == 0 ? (kv_outers){0, 1, 1} : (kv_outers){1, 0, 1};
            OPENED(side, source, ways[way].from, 0, &from, NULL, 11);
            OPENED(side, destination, ways[way].to, 0, &to, NULL, 22);
            CHECK(move_by_all(&source, &destination, &moves[kinds % NUM(moves)], values) >= 3);
        }
    }
}

/* The GPU divides the slots that were moved, and no others. */
TEST(the_checksums_of_what_is_moved_are_compared) {
    RETAIN_DEVICE(0);
    for (size_t i = 0; i < NUM(ways) * KV_NUM_KINDS; i++) {
        const kvmem_layout_config from = side_config(&kv_kinds[i % KV_NUM_KINDS]);
        const kvmem_layout_config to = side_config(&kv_kinds[(i + 1) % KV_NUM_KINDS]);
        const kv_move *move = &moves[i % NUM(moves)];
        kv_outers slots = outers[i % 4];
        OPENED(side, source, ways[i / KV_NUM_KINDS].from, 0, &from, NULL, 21);
        OPENED(side, destination, ways[i / KV_NUM_KINDS].to, 0, &to, NULL, 22);
        uint32_t checksums[NUM(scattered)];
        for (size_t k = 0; k < move->num_pairs; k++) {
            checksums[k] = crc_of_slots(&source.model, move->pairs[k].source, move->source_layer,
                                        move->num_layers, slots.source, slots.count);
        }
        kvmem_transfer_options options = kv_outers_options(move, slots);
        options.flags = KVMEM_TRANSFER_VERIFY;
        CHECK(move_by(&source, &destination, move, slots, &options));
        options.flags = 0;
        options.checksums = checksums;
        CHECK(move_by(&source, &destination, move, slots, &options));
        options.source_outer = slots.source = 1 - slots.source;
        GET(kvmem_transfer *, transfer, kvmem_transfer_create, source.model.layout, destination.model.layout,
            &options);
        EXPECT_OK(kvmem_transfer_submit(transfer, ERR));
        EXPECT_MESSAGE(KVMEM_STATUS_CORRUPT, "6 of 6 blocks", kvmem_transfer_wait(transfer, PATIENCE, ERR));
        CALL(kvmem_transfer_destroy(transfer));
        kv_expect_outers_moved(&destination.model, &source.model, move, slots);
        side_check(&destination);
    }
}

/* Slots of the ring that hold a piece each, so that most copies go round it. */
TEST(slots_go_between_files_and_a_gpu) {
    static const place places[] = {PLACE_DEVICE, PLACE_SPANNED, PLACE_ELASTIC};
    RETAIN_DEVICE(0);
    for (size_t i = 0; i < NUM(places) * KV_NUM_KINDS; i++) {
        const kvmem_layout_config here = side_config(&kv_kinds[i % KV_NUM_KINDS]);
        const kvmem_layout_config there = side_config(&kv_kinds[(i + i / KV_NUM_KINDS) % KV_NUM_KINDS]);
        const kv_move *move = &moves[i % NUM(moves)];
        const kv_outers slots = outers[i % NUM(outers)];
        CLEANUP(scratch_remove) scratch directory = scratch_create(temporary_directory());
        OPENED(side, device, places[i / KV_NUM_KINDS], 0, &here, NULL, 1);
        OPENED(file_side, file, &there, NULL, &directory, KVMEM_DISK_BUFFERED, 2);
        kvmem_transfer_options options = WITH(kv_outers_options(move, slots), it.staging_size = 4 * 480,
                                              it.flags = KVMEM_TRANSFER_VERIFY);
        kv_run_with(device.model.layout, file.model.layout, &options);
        kv_expect_outers_moved(&file.model, &device.model, move, slots);
        file_side_check(&file);
        side_refill(&device, 90 + (uint32_t)i);
        kv_run_with(file.model.layout, device.model.layout, &options);
        kv_expect_outers_moved(&device.model, &file.model, move, slots);
        side_check(&device);
        file_side_check(&file);
    }
}
