// SPDX-License-Identifier: Apache-2.0
// Transfers of some outer slots, keys or values alone, from and to GPU memory: every path by name, layer by
// layer, verified, and between a file and a GPU. The other slot stays as it was.
#include "gpu_flight.h"
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
static const route ways[] = {
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

static void expect_moved(flight *flight, kv_outers slots) {
    kv_expect_outers_moved(&flight->destination.model, &flight->source.model, flight->move, slots);
    side_check(&flight->destination);
    side_check(&flight->source);
}

static kvmem_transfer_options options_for(const flight *flight, kv_outers slots) {
    return kv_outers_options(flight->move, slots);
}

/* Whether the path was there; then every byte is as it must be. */
static bool move_by(flight *flight, kv_outers slots, kvmem_transfer_options options) {
    const kvmem_status status = flight_try_with(flight, options);
    if (status == KVMEM_STATUS_UNSUPPORTED && may_be_refused(options.path, &flight->source,
                                                             &flight->destination)) {
        return false;
    }
    CHECK_EQ(status, KVMEM_STATUS_OK);
    RUN(flight->transfer);
    const kvmem_transfer_info info = flight_info(flight);
    CHECK_EQ(info.num_pieces, flight->move->num_pairs * flight->move->num_layers * slots.count);
    CHECK_EQ(info.bytes, info.num_pieces * kv_piece_size(&flight->source.model.config));
    expect_moved(flight, slots);
    return true;
}

/* All paths, the staged one in chunks that hold a part of a block's layers, a few blocks, or all. */
static size_t move_by_all(flight *flight, kv_outers slots) {
    static const struct {
        uint32_t path;
        uint64_t staging_size;
    } paths[] = {
        {KVMEM_PATH_CUDA_COPY, 0},      {KVMEM_PATH_CUDA_BATCH, 0},        {KVMEM_PATH_CUDA_2D, 0},
        {KVMEM_PATH_CUDA_KERNEL, 0},    {KVMEM_PATH_CUDA_STAGED, 2000},    {KVMEM_PATH_CUDA_STAGED, 3 << 10},
        {KVMEM_PATH_CUDA_STAGED, 6000}, {KVMEM_PATH_CUDA_STAGED, 1 << 20},
    };
    size_t taken = 0;
    for (uint32_t i = 0; i < NUM(paths); i++) {
        flight_refill(flight, 100 + i);
        taken += move_by(flight, slots, WITH(options_for(flight, slots), it.path = paths[i].path,
                                             it.staging_size = paths[i].staging_size,
                                             it.flags = i % 2 == 0 ? KVMEM_TRANSFER_BY_LAYER : 0));
    }
    return taken;
}

TEST(every_path_moves_the_slots_alone) {
    RETAIN_DEVICE(0);
    for (size_t kinds = 0; kinds < KV_NUM_KINDS * KV_NUM_KINDS; kinds++) {
        for (size_t way = 0; way < NUM(ways); way++) {
            const kvmem_layout_config from = side_config(&kv_kinds[kinds / KV_NUM_KINDS]);
            const kvmem_layout_config to = side_config(&kv_kinds[kinds % KV_NUM_KINDS]);
            OPENED(flight, flight, .from = ways[way].from, .to = ways[way].to, .source = &from,
                   .destination = &to);
            for (size_t i = 0; i < NUM(outers); i++) {
                flight.move = &moves[(kinds + i) % NUM(moves)];
                CHECK(move_by_all(&flight, outers[i]) > 0);
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
            OPENED(flight, flight, .from = ways[way].from, .to = ways[way].to, .source = &from,
                   .destination = &to, .move = &moves[kinds % NUM(moves)]);
            CHECK(move_by_all(&flight, values) >= 3);
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
        const route way = ways[i / KV_NUM_KINDS];
        kv_outers slots = outers[i % 4];
        OPENED(flight, flight, .from = way.from, .to = way.to, .source = &from, .destination = &to,
               .move = move);
        uint32_t checksums[NUM(scattered)];
        for (size_t k = 0; k < move->num_pairs; k++)
            checksums[k] = crc_of_slots(&flight.source.model, move->pairs[k].source, move->source_layer,
                                        move->num_layers, slots.source, slots.count);
        CHECK(move_by(&flight, slots, WITH(options_for(&flight, slots), it.flags = KVMEM_TRANSFER_VERIFY)));
        CHECK(move_by(&flight, slots, WITH(options_for(&flight, slots), it.checksums = checksums)));
        slots.source = 1 - slots.source;
        flight_create_with(&flight, WITH(options_for(&flight, slots), it.checksums = checksums));
        flight_submit(&flight);
        flight_expect_end(&flight, KVMEM_STATUS_CORRUPT, "6 of 6 moved blocks");
        expect_moved(&flight, slots);
    }
}

/* Slots of the ring that hold a piece each, so that most copies go round it. */
TEST(slots_go_between_files_and_a_gpu) {
    static const place places[] = {PLACE_DEVICE, PLACE_SPANNED, PLACE_ELASTIC};
    RETAIN_DEVICE(0);
    for (uint32_t i = 0; i < NUM(places) * KV_NUM_KINDS; i++) {
        const kvmem_layout_config here = side_config(&kv_kinds[i % KV_NUM_KINDS]);
        const kvmem_layout_config there = side_config(&kv_kinds[(i + i / KV_NUM_KINDS) % KV_NUM_KINDS]);
        const kv_outers slots = outers[i % NUM(outers)];
        OPENED(flight, flight, .from = places[i / KV_NUM_KINDS], .to = PLACE_FILE, .source = &here,
               .destination = &there, .move = &moves[i % NUM(moves)], .file_flags = KVMEM_DISK_BUFFERED);
        for (int way = 0; way < 2; way++) {
            CHECK(move_by(&flight, slots, WITH(options_for(&flight, slots), it.staging_size = 4 * 480,
                                               it.flags = KVMEM_TRANSFER_VERIFY)));
            flight_turn_round(&flight);
            flight_refill(&flight, 90 + i);
        }
    }
}
