// SPDX-License-Identifier: Apache-2.0
// Every path of GPU copies, asked for by name: between every two places, at any size and alignment, byte by
// byte; and what is refused, with the reason.
#include "sides.h"
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

static bool is_pageable(const side *side) {
    return place_is_pageable(side->place);
}

static bool is_host(const side *side) {
    return !place_is_device(side->place);
}

/* Rows are refused where blocks lie together; all else is as the places are. */
static bool may_be_refused(uint32_t path, const side *source, const side *destination) {
    switch (path) {
    case KVMEM_PATH_CUDA_COPY:
        return false;
    case KVMEM_PATH_CUDA_2D:
        return true;
    case KVMEM_PATH_CUDA_STAGED:
        return is_pageable(source) || is_pageable(destination) || is_host(source) == is_host(destination);
    default:
        return is_pageable(source) || is_pageable(destination);
    }
}

static kvmem_transfer_options options_for(const kv_move *move, uint32_t path) {
    return WITH(kv_transfer_options(move), it.path = path);
}

/* Whether the path was there; then every byte is as it must be. */
static bool move_by(side *source, side *destination, const kv_move *move,
                    const kvmem_transfer_options *options) {
    kvmem_transfer *transfer = NULL;
    const kvmem_status status =
        kvmem_transfer_create(source->model.layout, destination->model.layout, options, &transfer, ERR);
    stance_check(__FILE__, __LINE__, "kvmem_transfer_create");
    if (status == KVMEM_STATUS_UNSUPPORTED && may_be_refused(options->path, source, destination)) {
        return false;
    }
    CHECK_EQ(status, KVMEM_STATUS_OK);
    GET(kvmem_transfer_info, info, kvmem_transfer_get_info, transfer);
    CHECK_EQ(info.path, options->path);
    RUN(transfer);
    CALL(kvmem_transfer_destroy(transfer));
    side_check_moved(destination, source, move);
    side_check(source);
    return true;
}

/* All paths between two sides, one after the other; how many there were. */
static size_t move_by_all(side *source, side *destination, const kv_move *move) {
    size_t taken = 0;
    for (size_t i = 0; i < NUM(paths); i++) {
        side_refill(source, 100 + (uint32_t)i);
        const kvmem_transfer_options options = options_for(move, paths[i]);
        taken += move_by(source, destination, move, &options);
    }
    return taken;
}

static size_t move_between(place from, const kvmem_layout_config *source_config, place to,
                           const kvmem_layout_config *destination_config, const kv_move *move) {
    OPENED(side, source, from, 0, source_config, NULL, 11);
    OPENED(side, destination, to, 0, destination_config, NULL, 22);
    const size_t taken = move_by_all(&source, &destination, move);
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
                if (place_is_device(from) || place_is_device(to)) {
                    CHECK(move_between(from, &source, to, &destination, &moves[turn % NUM(moves)]) > 0);
                }
            }
        }
    }
}

/* The ways between a GPU and the rest that engines take most. */
static const struct {
    place from, to;
} ways[] = {
    {PLACE_PINNED, PLACE_DEVICE},
    {PLACE_DEVICE, PLACE_PINNED},
    {PLACE_ADOPTED, PLACE_DEVICE},
};

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
            move_between(ways[way].from, &configs[0], ways[way].to, &configs[1], &moves[i % 2]);
        }
    }
}

/* Staging memory that holds the transfer in many chunks: a few blocks of a layer, a few layers, or all. */
TEST(staging_memory_of_any_size_does) {
    static const uint64_t sizes[] = {1 << 10, 2000, 3 << 10, 8 << 10, 20000, 1 << 20};
    RETAIN_DEVICE(0);
    for (size_t kinds = 0; kinds < KV_NUM_KINDS * KV_NUM_KINDS; kinds++) {
        for (size_t way = 0; way < 2; way++) {
            const kvmem_layout_config from = side_config(&kv_kinds[kinds / KV_NUM_KINDS]);
            const kvmem_layout_config to = side_config(&kv_kinds[kinds % KV_NUM_KINDS]);
            OPENED(side, source, ways[way].from, 0, &from, NULL, 1);
            OPENED(side, destination, ways[way].to, 0, &to, NULL, 2);
            for (size_t i = 0; i < NUM(sizes); i++) {
                const kv_move *move = &moves[i % NUM(moves)];
                kvmem_transfer_options options = options_for(move, KVMEM_PATH_CUDA_STAGED);
                options.staging_size = sizes[i];
                side_refill(&source, 50 + (uint32_t)i);
                if (sizes[i] < 2 * 2 * 480) {
                    REFUSE(KVMEM_STATUS_UNSUPPORTED, "staging_size", kvmem_transfer_create,
                           source.model.layout, destination.model.layout, &options);
                } else {
                    CHECK(move_by(&source, &destination, move, &options));
                }
            }
        }
    }
}

static void refuse(place from, place to, kvmem_transfer_options options, const kv_kind *kind,
                   const char *reason) {
    const kvmem_layout_config config = side_config(kind);
    OPENED(side, source, from, 0, &config, NULL, 1);
    OPENED(side, destination, to, 0, &config, NULL, 2);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, reason, kvmem_transfer_create, source.model.layout,
           destination.model.layout, &options);
}

/* Every second of blocks that are one stretch each: rows, also where memory is in several pieces. */
TEST(whole_blocks_at_regular_distances_are_rows) {
    static const place places[] = {PLACE_PINNED, PLACE_CHUNKED, PLACE_DEVICE, PLACE_SPANNED, PLACE_ELASTIC};
    const kv_move move = {every_second, NUM(every_second), 0, 0, 3};
    const kvmem_layout_config config = side_config(&kv_kinds[0]);
    retain_device(0);
    for (size_t i = 0; i < NUM(places); i++) {
        OPENED(side, source, places[i], 0, &config, NULL, 1);
        OPENED(side, destination, PLACE_DEVICE, 0, &config, NULL, 2);
        const kvmem_transfer_options options = options_for(&move, KVMEM_PATH_CUDA_2D);
        CHECK(move_by(&source, &destination, &move, &options));
    }
    release_device(0);
    refuse(PLACE_PINNED, PLACE_DEVICE, options_for(&moves[0], KVMEM_PATH_CUDA_2D), &kv_kinds[0],
           "no other blocks have a constant stride");
}

/* However few CTAs do it. */
TEST(a_grid_may_be_capped) {
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    OPENED(side, source, PLACE_PINNED, 0, &config, NULL, 1);
    OPENED(side, destination, PLACE_DEVICE, 0, &config, NULL, 2);
    for (uint32_t ctas = 1; ctas < 40; ctas += 6) {
        kvmem_transfer_options options = options_for(&moves[0], KVMEM_PATH_CUDA_KERNEL);
        options.max_ctas = ctas;
        side_refill(&source, ctas);
        CHECK(move_by(&source, &destination, &moves[0], &options));
    }
}

/* Blocks whose order takes many runs, in more tiles than a CTA has warps. */
TEST(many_blocks_arrive_by_every_path) {
    enum { BLOCKS = 700 };
    kvmem_layout_config from = WITH(kv_config(&kv_kinds[0]), it.num_blocks = BLOCKS, it.num_layers = 2,
                                    it.page_size = 16, it.inner_dim = 136);
    kvmem_layout_config to = from;
    to.kind = KVMEM_LAYOUT_LAYER_SEPARATE;
    to.block_dim = KVMEM_BLOCK_DIM_SECOND;
    kvmem_block_pair pairs[BLOCKS - 100];
    for (uint32_t i = 0; i < NUM(pairs); i++) {
        pairs[i] = (kvmem_block_pair){i < 300 ? (i * 7) % 300 : i + 50, i < 300 ? (i * 11) % 300 : i + 100};
    }
    const kv_move move = {pairs, NUM(pairs), 0, 0, 2};
    RETAIN_DEVICE(0);
    for (size_t way = 0; way < NUM(ways); way++) {
        CHECK(move_between(ways[way].from, &from, ways[way].to, &to, &move) >= 4 - (way == 2));
    }
}

/* As many runs of blocks as go with a launch of the kernel behind its layers, 240 in all, and some more or
   less. */
TEST(runs_go_with_a_launch_or_lie_in_the_ring) {
    enum { BLOCKS = 244 };
    kvmem_layout_config config = WITH(kv_config(&kv_kinds[1]), it.num_blocks = BLOCKS);
    kvmem_block_pair pairs[BLOCKS];
    for (uint32_t i = 0; i < BLOCKS; i++) {
        pairs[i] = (kvmem_block_pair){i, BLOCKS - 1 - i};
    }
    RETAIN_DEVICE(0);
    OPENED(side, source, PLACE_PINNED, 0, &config, NULL, 1);
    OPENED(side, destination, PLACE_DEVICE, 0, &config, NULL, 2);
    for (size_t blocks = 234; blocks <= BLOCKS; blocks++) {
        const kv_move move = {pairs, blocks, 0, 0, config.num_layers};
        kvmem_transfer_options options = options_for(&move, KVMEM_PATH_CUDA_KERNEL);
        options.flags = blocks % 2 ? KVMEM_TRANSFER_BY_LAYER : 0;
        side_refill(&source, (uint32_t)blocks);
        CHECK(move_by(&source, &destination, &move, &options));
    }
}

/* More runs than the ring takes of one copy: they get memory of their own. */
TEST(more_runs_than_the_ring_takes_arrive_by_kernels) {
    enum { BLOCKS = 140000 };
    static const uint32_t kernels[] = {KVMEM_PATH_CUDA_KERNEL, KVMEM_PATH_CUDA_STAGED};
    kvmem_layout_config config = WITH(kv_config(&kv_kinds[0]), it.num_blocks = BLOCKS,
                                      it.num_layers = it.page_size = 1, it.inner_dim = 16);
    CLEANUP(test_free) kvmem_block_pair *pairs = calloc(BLOCKS, sizeof(*pairs));
    CHECK(pairs != NULL);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        pairs[i] = (kvmem_block_pair){i, BLOCKS - 1 - i};
    }
    const kv_move move = {pairs, BLOCKS, 0, 0, 1};
    RETAIN_DEVICE(0);
    OPENED(side, source, PLACE_PINNED, 0, &config, NULL, 1);
    OPENED(side, destination, PLACE_DEVICE, 0, &config, NULL, 2);
    for (size_t i = 0; i < NUM(kernels); i++) {
        const kvmem_transfer_options options = options_for(&move, kernels[i]);
        side_refill(&source, 5 + (uint32_t)i);
        CHECK(move_by(&source, &destination, &move, &options));
    }
}

TEST(what_can_not_be_taken_is_refused_with_the_reason) {
    const kv_move *move = &moves[0];
    const kv_kind *kind = &kv_kinds[1];
    refuse(PLACE_SYSTEM, PLACE_DEVICE, options_for(move, KVMEM_PATH_CUDA_KERNEL), kind, "not page-locked");
    refuse(PLACE_DEVICE, PLACE_SYSTEM, options_for(move, KVMEM_PATH_CUDA_BATCH), kind, "not page-locked");
    refuse(PLACE_SYSTEM, PLACE_DEVICE, options_for(move, KVMEM_PATH_CUDA_STAGED), kind, "not page-locked");
    refuse(PLACE_DEVICE, PLACE_DEVICE, options_for(move, KVMEM_PATH_CUDA_STAGED), kind,
           "neither side is host");
    refuse(PLACE_DEVICE, PLACE_DEVICE, options_for(move, KVMEM_PATH_MEMCPY), kind, "memcpy");
    refuse(PLACE_PINNED, PLACE_SYSTEM, options_for(move, KVMEM_PATH_CUDA_KERNEL), kind, "possible: memcpy");
    kvmem_transfer_options options = WITH(options_for(move, 0), it.flags = KVMEM_TRANSFER_NO_HOST_BOUNCE);
    refuse(PLACE_SYSTEM, PLACE_DEVICE, options, kind, "its own host memory");
    options.flags = KVMEM_TRANSFER_ZERO_COPY;
    refuse(PLACE_DEVICE, PLACE_SYSTEM, options, kind, "its own host memory");
    options.path = KVMEM_PATH_CUDA_STAGED;
    refuse(PLACE_DEVICE, PLACE_PINNED, options, kind, "staging memory");
}

static kvmem_transfer_explanation explain(place from, place to, kvmem_transfer_options options,
                                          const char *part) {
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    OPENED(side, source, from, 0, &config, NULL, 1);
    OPENED(side, destination, to, 0, &config, NULL, 2);
    OWN(kvmem_transfer, transfer, kvmem_transfer_create, source.model.layout, destination.model.layout,
        &options);
    kvmem_transfer_explanation explanation;
    OWN(kvmem_blob, text, kvmem_transfer_explain, transfer, &explanation);
    CHECK_HAS(kvmem_blob_data(text), part);
    CHECK_HAS(kvmem_blob_data(text), kvmem_path_name(explanation.path));
    CHECK_EQ(strlen(kvmem_blob_data(text)), kvmem_blob_size(text));
    GET(kvmem_transfer_info, info, kvmem_transfer_get_info, transfer);
    CHECK_EQ(info.path, explanation.path);
    CHECK_EQ(info.num_moves, explanation.num_moves);
    return explanation;
}

TEST(the_choice_is_explained) {
    kvmem_transfer_options options = options_for(&moves[0], 0);
    CHECK(explain(PLACE_PINNED, PLACE_SYSTEM, options, "by memcpy").bytes_per_second > 0);
    CHECK(explain(PLACE_SYSTEM, PLACE_DEVICE, options, "not page-locked").bytes_per_second > 0);
    const kvmem_transfer_explanation beside =
        explain(PLACE_DEVICE, PLACE_PINNED, options, "too few for staging");
    options.compute = KVMEM_COMPUTE_IDLE;
    const kvmem_transfer_explanation alone = explain(PLACE_DEVICE, PLACE_PINNED, options, "slower");
    CHECK(alone.bytes_per_second >= beside.bytes_per_second);
    options.path = KVMEM_PATH_CUDA_COPY;
    explain(PLACE_DEVICE, PLACE_PINNED, options, "another path was requested");
}

TEST(names_of_paths) {
    CHECK_STR(kvmem_path_name(KVMEM_PATH_CUDA_KERNEL), "CUDA kernel");
    CHECK_STR(kvmem_path_name(KVMEM_PATH_CUDA_STAGED), "CUDA staged");
    CHECK_STR(kvmem_path_name(KVMEM_PATH_CUDA_BATCH), "CUDA batch");
    CHECK_STR(kvmem_path_name(KVMEM_PATH_CUDA_2D), "CUDA 2D copy");
    CHECK_STR(kvmem_path_name(KVMEM_PATH_CUDA_STAGED + 1000), "unknown");
}
