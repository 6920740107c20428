// SPDX-License-Identifier: Apache-2.0
// Transfers of some outer slots, only keys or only values, from and to GPU memory: on every path, by layer,
// verified, and between a file and a GPU. The other slot is unchanged.
#include "gpu_flight.h"
#include "caller_context.h"

static const kvmem_block_pair scattered[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}, {4, 4}, {2, 1}};
static const kvmem_block_pair in_order[] = {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}};
static const kv_move moves[] = {
    {scattered, NUM(scattered), 0, 0, 3},
    {in_order, NUM(in_order), 0, 0, 3},
    {in_order, NUM(in_order), 1, 0, 2},
    {scattered, NUM(scattered), 0, 2, 1},
};
/* Keys, values, keys to values, values to keys, and both. */
static const kv_outers outers[] = {{0, 0, 1}, {1, 1, 1}, {0, 1, 1}, {1, 0, 1}, {0, 0, 2}};
static const route routes[] = {
    {PLACE_PINNED, PLACE_DEVICE},  {PLACE_DEVICE, PLACE_PINNED},  {PLACE_ADOPTED, PLACE_DEVICE},
    {PLACE_SPANNED, PLACE_PINNED}, {PLACE_SYSTEM, PLACE_ELASTIC},
};

/* KVMEM_METHOD_CUDA_2D needs a constant stride between blocks, and pageable memory supports few paths. */
static bool may_be_unsupported(uint32_t path, const side *source, const side *destination) {
    const bool has_pageable = source->place == PLACE_SYSTEM || destination->place == PLACE_SYSTEM;
    const bool on_devices = place_is_device(source->place) && place_is_device(destination->place);
    return path == KVMEM_METHOD_CUDA_2D || (path != KVMEM_METHOD_CUDA_COPY && has_pageable) ||
           (path == KVMEM_METHOD_CUDA_STAGED && on_devices);
}

static void expect_moved(flight *flight, kv_outers slots) {
    kv_expect_outers_moved(&flight->destination.model, &flight->source.model, flight->move, slots);
    side_check(&flight->destination);
    side_check(&flight->source);
}

static kv_job options_for(const flight *flight, kv_outers slots) {
    return kv_outers_job(flight->move, slots);
}

/* Returns whether the path is supported; if so, compares every byte after the move. */
static bool move_by(flight *flight, kv_outers slots, kv_job options) {
    const kvmem_status status = flight_try_with(flight, options);
    if (status == KVMEM_STATUS_UNSUPPORTED && may_be_unsupported(options.transfer.method, &flight->source,
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

/* On all paths, the staged path with chunks of some layers of a block, of a few blocks, and of all. Returns
   the number of supported paths. */
static size_t move_by_all(flight *flight, kv_outers slots) {
    static const struct {
        uint32_t path;
        uint64_t staging_size;
    } paths[] = {
        {KVMEM_METHOD_CUDA_COPY, 0},      {KVMEM_METHOD_CUDA_BATCH, 0},        {KVMEM_METHOD_CUDA_2D, 0},
        {KVMEM_METHOD_CUDA_KERNEL, 0},    {KVMEM_METHOD_CUDA_STAGED, 2000},    {KVMEM_METHOD_CUDA_STAGED,
                                                                                3 << 10},
        {KVMEM_METHOD_CUDA_STAGED, 6000}, {KVMEM_METHOD_CUDA_STAGED, 1 << 20},
    };
    size_t supported = 0;
    for (uint32_t i = 0; i < NUM(paths); i++) {
        flight_refill(flight, 100 + i);
        supported += move_by(flight, slots, WITH(options_for(flight, slots),
                                                 it.transfer.method = paths[i].path,
                                             it.transfer.staging_size = paths[i].staging_size,
                                             it.transfer.flags = i % 2 == 0 ? KVMEM_TRANSFER_BY_LAYER : 0));
    }
    return supported;
}

TEST(every_path_moves_only_the_slots) {
    RETAIN_DEVICE(0);
    for (size_t kinds = 0; kinds < KV_NUM_KINDS * KV_NUM_KINDS; kinds++) {
        for (size_t route = 0; route < NUM(routes); route++) {
            const kvmem_layout_config from = side_config(&kv_kinds[kinds / KV_NUM_KINDS]);
            const kvmem_layout_config to = side_config(&kv_kinds[kinds % KV_NUM_KINDS]);
            OPENED(flight, flight, .from = routes[route].from, .to = routes[route].to, .source = &from,
                   .destination = &to);
            for (size_t i = 0; i < NUM(outers); i++) {
                flight.move = &moves[(kinds + i) % NUM(moves)];
                CHECK(move_by_all(&flight, outers[i]) > 0);
            }
        }
    }
}

TEST(layouts_with_only_keys) {
    RETAIN_DEVICE(0);
    for (size_t kinds = 0; kinds < KV_NUM_KINDS * KV_NUM_KINDS; kinds++) {
        for (size_t route = 0; route < 2; route++) {
            kvmem_layout_config from = side_config(&kv_kinds[kinds / KV_NUM_KINDS]);
            kvmem_layout_config to = side_config(&kv_kinds[kinds % KV_NUM_KINDS]);
            *(route == 0 ? &from.outer_dim : &to.outer_dim) = 1;
            const kv_outers values = route == 0 ? (kv_outers){0, 1, 1} : (kv_outers){1, 0, 1};
            OPENED(flight, flight, .from = routes[route].from, .to = routes[route].to, .source = &from,
                   .destination = &to, .move = &moves[kinds % NUM(moves)]);
            CHECK(move_by_all(&flight, values) >= 3);
        }
    }
}

/* Checksums contain the moved slots only. */
TEST(checksums_of_the_moved_slots_are_compared) {
    RETAIN_DEVICE(0);
    for (size_t i = 0; i < NUM(routes) * KV_NUM_KINDS; i++) {
        const kvmem_layout_config from = side_config(&kv_kinds[i % KV_NUM_KINDS]);
        const kvmem_layout_config to = side_config(&kv_kinds[(i + 1) % KV_NUM_KINDS]);
        const kv_move *move = &moves[i % NUM(moves)];
        const route route = routes[i / KV_NUM_KINDS];
        kv_outers slots = outers[i % 4];
        OPENED(flight, flight, .from = route.from, .to = route.to, .source = &from, .destination = &to,
               .move = move);
        uint32_t checksums[NUM(scattered)];
        for (size_t k = 0; k < move->num_pairs; k++)
            checksums[k] = crc_of_slots(&flight.source.model, move->pairs[k].source, move->source_layer,
                                        move->num_layers, slots.source, slots.count);
        CHECK(move_by(&flight, slots, WITH(options_for(&flight, slots),
                                           it.run.flags = KVMEM_SUBMIT_VERIFY)));
        CHECK(move_by(&flight, slots, WITH(options_for(&flight, slots), it.run.checksums = checksums)));
        slots.source = 1 - slots.source;
        flight_create_with(&flight, WITH(options_for(&flight, slots), it.run.checksums = checksums));
        flight_submit(&flight);
        flight_expect_end(&flight, KVMEM_STATUS_CORRUPT, "6 of 6 moved blocks");
        expect_moved(&flight, slots);
    }
}

/* A slot of the staging ring contains one piece, so that most copies wrap around. */
TEST(slots_are_moved_between_files_and_a_gpu) {
    static const place places[] = {PLACE_DEVICE, PLACE_SPANNED, PLACE_ELASTIC};
    RETAIN_DEVICE(0);
    for (uint32_t i = 0; i < NUM(places) * KV_NUM_KINDS; i++) {
        const kvmem_layout_config here = side_config(&kv_kinds[i % KV_NUM_KINDS]);
        const kvmem_layout_config there = side_config(&kv_kinds[(i + i / KV_NUM_KINDS) % KV_NUM_KINDS]);
        const kv_outers slots = outers[i % NUM(outers)];
        OPENED(flight, flight, .from = places[i / KV_NUM_KINDS], .to = PLACE_FILE, .source = &here,
               .destination = &there, .move = &moves[i % NUM(moves)], .file_flags = KVMEM_DISK_BUFFERED);
        for (int direction = 0; direction < 2; direction++) {
            CHECK(move_by(&flight, slots, WITH(options_for(&flight, slots),
                                               it.transfer.staging_size = 4 * 480,
                                               it.run.flags = KVMEM_SUBMIT_VERIFY)));
            flight_reverse(&flight);
            flight_refill(&flight, 90 + i);
        }
    }
}
