// SPDX-License-Identifier: Apache-2.0
// Every path of GPU copies, asked for by name: between every two places, at any size and alignment, byte by
// byte; and what is refused, with the reason.
#include "gpu_flight.h"
#include "stance.h"

static const uint32_t paths[] = {KVMEM_PATH_CUDA_COPY, KVMEM_PATH_CUDA_BATCH, KVMEM_PATH_CUDA_2D,
                                 KVMEM_PATH_CUDA_KERNEL, KVMEM_PATH_CUDA_STAGED};

/* Ids scattered at both ends, runs that merge and runs that only look as if they did. */
static const kvmem_block_pair scattered[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}, {4, 4}, {2, 1}};
static const kvmem_block_pair in_order[] = {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}};
static const kvmem_block_pair fan_out[] = {{3, 0}, {3, 1}, {3, 2}, {5, 6}};
static const kvmem_block_pair every_second[] = {{0, 0}, {2, 1}, {4, 2}, {6, 3}, {1, 6}};
static const kv_move moves[] = {
    {scattered, NUM(scattered), 0, 0, 3},
    {in_order, NUM(in_order), 0, 0, 3},
    {fan_out, NUM(fan_out), 1, 0, 2},
    {scattered, NUM(scattered), 0, 2, 1},
    {every_second, NUM(every_second), 0, 0, 3},
};

static bool is_pageable(const side *side) { return place_is_pageable(side->place); }

static bool is_host(const side *side) { return !place_is_device(side->place); }

/* Rows are refused where blocks lie together; all else is as the places are. */
static bool may_be_refused(uint32_t path, const side *source, const side *destination) {
    switch (path) {
    case KVMEM_PATH_CUDA_COPY: return false;
    case KVMEM_PATH_CUDA_2D: return true;
    case KVMEM_PATH_CUDA_STAGED:
        return is_pageable(source) || is_pageable(destination) || is_host(source) == is_host(destination);
    default: return is_pageable(source) || is_pageable(destination);
    }
}

/* Whether the path was there; then every byte is as it must be. */
static bool move_by(flight *flight, kvmem_transfer_options options) {
    const kvmem_status status = flight_try_with(flight, options);
    if (status == KVMEM_STATUS_UNSUPPORTED && may_be_refused(options.path, &flight->source,
                                                             &flight->destination)) {
        return false;
    }
    CHECK_EQ(status, KVMEM_STATUS_OK);
    CHECK_EQ(flight_info(flight).path, options.path);
    flight_run(flight);
    return true;
}

#define MOVE_BY(flight, ...) move_by(flight, WITH(flight_options(flight), __VA_ARGS__))

/* All paths between two sides, one after the other; how many there were. */
static size_t move_between(route way, const kvmem_layout_config *source,
                           const kvmem_layout_config *destination, const kv_move *move) {
    size_t taken = 0;
    OPENED(flight, flight, .from = way.from, .to = way.to, .source = source, .destination = destination,
           .move = move);
    for (uint32_t i = 0; i < NUM(paths); i++) {
        flight_refill(&flight, 100 + i);
        taken += MOVE_BY(&flight, it.path = paths[i]);
    }
    return taken;
}

/* All places and all kinds of layout; the moves take turns. */
TEST(every_path_between_every_two_places) {
    size_t turn = 0;
    RETAIN_DEVICE(0);
    for (place from = 0; from < NUM_PLACES; from++) {
        for (place to = 0; to < NUM_PLACES; to++) {
            for (size_t kinds = 0; kinds < KV_NUM_KINDS * KV_NUM_KINDS; kinds++, turn++) {
                const kvmem_layout_config source = side_config(&kv_kinds[kinds / KV_NUM_KINDS]);
                const kvmem_layout_config destination = side_config(&kv_kinds[kinds % KV_NUM_KINDS]);
                const route way = {from, to};
                if (place_is_device(from) || place_is_device(to))
                    CHECK(move_between(way, &source, &destination, &moves[turn % NUM(moves)]) > 0);
            }
        }
    }
}

/* The routes between a GPU and the rest that engines take most. */
static const route ways[] = {
    {PLACE_PINNED, PLACE_DEVICE}, {PLACE_DEVICE, PLACE_PINNED}, {PLACE_ADOPTED, PLACE_DEVICE}};

/* Sizes that no vector divides, at addresses that no two sides share. */
TEST(odd_sizes_at_odd_addresses) {
    static const struct {
        uint64_t page_size, inner_dim, dtype_width, outer_dim, alignment;
    } shapes[] = {
        {1, 1, 1, 1, 1},    {3, 7, 1, 2, 1},     {5, 3, 2, 2, 1},    {1, 15, 1, 2, 1},  {1, 17, 1, 2, 16},
        {4, 33, 4, 1, 1},   {16, 1021, 1, 2, 1}, {7, 1171, 1, 2, 1}, {1, 4095, 1, 2, 1}, {1, 4097, 1, 2, 1},
        {3, 2731, 2, 1, 1}, {16, 1024, 2, 2, 1}, {9, 513, 8, 2, 64},
    };
    RETAIN_DEVICE(0);
    for (size_t way = 0; way < NUM(ways); way++) {
        for (size_t i = 0; i < NUM(shapes); i++) {
            const size_t other = (i / KV_NUM_KINDS + way) % KV_NUM_KINDS;
            kvmem_layout_config configs[] = {side_config(&kv_kinds[i % KV_NUM_KINDS]),
                                             side_config(&kv_kinds[other])};
            for (size_t side = 0; side < 2; side++) {
                configs[side].page_size = shapes[i].page_size;
                configs[side].inner_dim = shapes[i].inner_dim;
                configs[side].dtype_width = shapes[i].dtype_width;
                configs[side].outer_dim = shapes[i].outer_dim;
            }
            configs[way % 2].alignment = shapes[i].alignment;
            move_between(ways[way], &configs[0], &configs[1], &moves[i % 2]);
        }
    }
}

/* Staging memory that holds the transfer in many chunks: a few blocks of a layer, a few layers, or all. */
TEST(staging_memory_of_any_size_does) {
    static const uint64_t sizes[] = {1, 1 << 10, 2000, 3 << 10, 8 << 10, 20000, 1 << 20};
    RETAIN_DEVICE(0);
    for (size_t i = 0; i < KV_NUM_KINDS * KV_NUM_KINDS * 2; i++) {
        const kvmem_layout_config from = side_config(&kv_kinds[i / 2 / KV_NUM_KINDS]);
        const kvmem_layout_config to = side_config(&kv_kinds[i / 2 % KV_NUM_KINDS]);
        OPENED(flight, flight, .from = ways[i % 2].from, .to = ways[i % 2].to, .source = &from,
               .destination = &to);
        for (uint32_t k = 0; k < NUM(sizes); k++) {
            flight.move = &moves[k % NUM(moves)];
            flight_refill(&flight, 50 + k);
            if (sizes[k] < 2) {
                flight_refuse(&flight, KVMEM_STATUS_UNSUPPORTED, "staging_size",
                              it.path = KVMEM_PATH_CUDA_STAGED, it.staging_size = sizes[k]);
            } else {
                CHECK(MOVE_BY(&flight, it.path = KVMEM_PATH_CUDA_STAGED, it.staging_size = sizes[k]));
            }
        }
    }
}

/* Every second of blocks that are one stretch each: rows, also where memory is in several pieces. */
TEST(whole_blocks_at_regular_distances_are_rows) {
    static const place places[] = {PLACE_PINNED, PLACE_CHUNKED, PLACE_DEVICE, PLACE_SPANNED, PLACE_ELASTIC};
    const kv_move move = {every_second, NUM(every_second), 0, 0, 3};
    const kvmem_layout_config config = side_config(&kv_kinds[0]);
    RETAIN_DEVICE(0);
    for (size_t i = 0; i < NUM(places); i++) {
        OPENED(flight, flight, .from = places[i], .to = PLACE_DEVICE, .source = &config, .move = &move);
        CHECK(MOVE_BY(&flight, it.path = KVMEM_PATH_CUDA_2D));
    }
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE, .source = &config, .move = &moves[0]);
    flight_refuse(&flight, KVMEM_STATUS_UNSUPPORTED, "no other blocks have a constant stride",
                  it.path = KVMEM_PATH_CUDA_2D);
}

/* However few CTAs do it. */
TEST(a_grid_may_be_capped) {
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE);
    for (uint32_t ctas = 1; ctas < 40; ctas += 6) {
        flight_refill(&flight, ctas);
        CHECK(MOVE_BY(&flight, it.path = KVMEM_PATH_CUDA_KERNEL, it.max_ctas = ctas));
    }
}

/* Blocks whose order takes many runs, in more tiles than a CTA has warps. */
TEST(many_blocks_arrive_by_every_path) {
    enum { BLOCKS = 700 };
    const kvmem_layout_config from = WITH(kv_config(&kv_kinds[0]), it.num_blocks = BLOCKS, it.num_layers = 2,
                                          it.page_size = 16, it.inner_dim = 136);
    const kvmem_layout_config to = WITH(kv_config(&kv_kinds[2]), it.num_blocks = BLOCKS, it.num_layers = 2,
                                        it.page_size = 16, it.inner_dim = 136);
    kvmem_block_pair pairs[BLOCKS - 100];
    for (uint32_t i = 0; i < NUM(pairs); i++)
        pairs[i] = (kvmem_block_pair){i < 300 ? (i * 7) % 300 : i + 50, i < 300 ? (i * 11) % 300 : i + 100};
    const kv_move move = {pairs, NUM(pairs), 0, 0, 2};
    RETAIN_DEVICE(0);
    for (size_t way = 0; way < NUM(ways); way++)
        CHECK(move_between(ways[way], &from, &to, &move) >= 4 - (way == 2));
}

/* As many runs of blocks as go with a launch of the kernel behind its layers, 240 in all, and some more or
   less. */
TEST(runs_go_with_a_launch_or_lie_in_the_ring) {
    enum { BLOCKS = 244 };
    const kvmem_layout_config config = WITH(kv_config(&kv_kinds[1]), it.num_blocks = BLOCKS);
    kvmem_block_pair pairs[BLOCKS];
    for (uint32_t i = 0; i < BLOCKS; i++) pairs[i] = (kvmem_block_pair){i, BLOCKS - 1 - i};
    RETAIN_DEVICE(0);
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE, .source = &config);
    for (uint32_t blocks = 234; blocks <= BLOCKS; blocks++) {
        const kv_move move = {pairs, blocks, 0, 0, config.num_layers};
        flight.move = &move;
        flight_refill(&flight, blocks);
        CHECK(MOVE_BY(&flight, it.path = KVMEM_PATH_CUDA_KERNEL,
                      it.flags = blocks % 2 ? KVMEM_TRANSFER_BY_LAYER : 0));
    }
}

/* More runs than the ring takes of one copy: they get memory of their own. */
TEST(more_runs_than_the_ring_takes_arrive_by_kernels) {
    enum { BLOCKS = 140000 };
    static const uint32_t kernels[] = {KVMEM_PATH_CUDA_KERNEL, KVMEM_PATH_CUDA_STAGED};
    const kvmem_layout_config config = WITH(kv_config(&kv_kinds[0]), it.num_blocks = BLOCKS,
                                            it.num_layers = it.page_size = 1, it.inner_dim = 16);
    CLEANUP(test_free) kvmem_block_pair *pairs = test_allocate(BLOCKS * sizeof(*pairs));
    for (uint32_t i = 0; i < BLOCKS; i++) pairs[i] = (kvmem_block_pair){i, BLOCKS - 1 - i};
    const kv_move move = {pairs, BLOCKS, 0, 0, 1};
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE, .source = &config, .move = &move);
    for (uint32_t i = 0; i < NUM(kernels); i++) {
        flight_refill(&flight, 5 + i);
        CHECK(MOVE_BY(&flight, it.path = kernels[i]));
    }
}

TEST(what_can_not_be_taken_is_refused_with_the_reason) {
    static const struct {
        route way;
        uint32_t path;
        uint64_t flags;
        const char *reason;
    } refused[] = {
        {{PLACE_SYSTEM, PLACE_DEVICE}, KVMEM_PATH_CUDA_KERNEL, 0, "not page-locked"},
        {{PLACE_DEVICE, PLACE_SYSTEM}, KVMEM_PATH_CUDA_BATCH, 0, "not page-locked"},
        {{PLACE_SYSTEM, PLACE_DEVICE}, KVMEM_PATH_CUDA_STAGED, 0, "not page-locked"},
        {{PLACE_DEVICE, PLACE_DEVICE}, KVMEM_PATH_CUDA_STAGED, 0, "neither side is host"},
        {{PLACE_DEVICE, PLACE_DEVICE}, KVMEM_PATH_MEMCPY, 0, "memcpy"},
        {{PLACE_PINNED, PLACE_SYSTEM}, KVMEM_PATH_CUDA_KERNEL, 0, "possible: memcpy"},
        {{PLACE_SYSTEM, PLACE_DEVICE}, 0, KVMEM_TRANSFER_NO_HOST_BOUNCE, "its own host memory"},
        {{PLACE_DEVICE, PLACE_SYSTEM}, 0, KVMEM_TRANSFER_ZERO_COPY, "its own host memory"},
        {{PLACE_DEVICE, PLACE_PINNED}, KVMEM_PATH_CUDA_STAGED, KVMEM_TRANSFER_ZERO_COPY, "staging memory"},
    };
    for (size_t i = 0; i < NUM(refused); i++) {
        OPENED(flight, flight, .from = refused[i].way.from, .to = refused[i].way.to);
        flight_refuse(&flight, KVMEM_STATUS_UNSUPPORTED, refused[i].reason, it.path = refused[i].path,
                      it.flags = refused[i].flags);
    }
}

/* The rate that is expected of the path, in bytes per second. */
static uint64_t explain(place from, place to, uint32_t path, uint32_t compute, const char *part) {
    OPENED(flight, flight, .from = from, .to = to);
    flight_create(&flight, it.path = path, it.compute = compute);
    return flight_explain(&flight, part).bytes_per_second;
}

TEST(the_choice_is_explained) {
    CHECK(explain(PLACE_PINNED, PLACE_SYSTEM, 0, 0, "by memcpy") > 0);
    CHECK(explain(PLACE_SYSTEM, PLACE_DEVICE, 0, 0, "not page-locked") > 0);
    const uint64_t beside = explain(PLACE_DEVICE, PLACE_PINNED, 0, 0, "too few for staging");
    CHECK(explain(PLACE_DEVICE, PLACE_PINNED, 0, KVMEM_COMPUTE_IDLE, "slower") >= beside);
    explain(PLACE_DEVICE, PLACE_PINNED, 0, 0, "\ncompute: keeps the GPU ");
    explain(PLACE_DEVICE, PLACE_PINNED, KVMEM_PATH_CUDA_COPY, KVMEM_COMPUTE_IDLE,
            "another path was requested");
}

TEST(names_of_paths) {
    CHECK_STR(kvmem_path_name(KVMEM_PATH_CUDA_KERNEL), "CUDA kernel");
    CHECK_STR(kvmem_path_name(KVMEM_PATH_CUDA_STAGED), "CUDA staged");
    CHECK_STR(kvmem_path_name(KVMEM_PATH_CUDA_BATCH), "CUDA batch");
    CHECK_STR(kvmem_path_name(KVMEM_PATH_CUDA_2D), "CUDA 2D copy");
    CHECK_STR(kvmem_path_name(KVMEM_PATH_CUDA_STAGED + 1000), "unknown");
}
