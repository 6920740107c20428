// SPDX-License-Identifier: Apache-2.0
// Every path of GPU copies, requested explicitly: between every two places, with all sizes and alignments,
// compared byte by byte; unsupported paths, and the reasons in their errors.
#include "gpu_flight.h"
#include "caller_context.h"

static const uint32_t paths[] = {KVMEM_METHOD_CUDA_COPY, KVMEM_METHOD_CUDA_BATCH, KVMEM_METHOD_CUDA_2D,
                                 KVMEM_METHOD_CUDA_KERNEL, KVMEM_METHOD_CUDA_STAGED};

/* Scattered ids on both sides, runs of blocks that merge, and runs of which only one side is contiguous. */
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

/* KVMEM_METHOD_CUDA_2D needs a constant stride between blocks; other paths depend on the places. */
static bool may_be_unsupported(uint32_t path, const side *source, const side *destination) {
    switch (path) {
    case KVMEM_METHOD_CUDA_COPY: return false;
    case KVMEM_METHOD_CUDA_2D: return true;
    case KVMEM_METHOD_CUDA_STAGED:
        return is_pageable(source) || is_pageable(destination) || is_host(source) == is_host(destination);
    default: return is_pageable(source) || is_pageable(destination);
    }
}

/* Returns whether the path is supported; if so, compares every byte after the move. */
static bool move_by(flight *flight, kv_job options) {
    const kvmem_status status = flight_try_with(flight, options);
    if (status == KVMEM_STATUS_UNSUPPORTED && may_be_unsupported(options.transfer.method, &flight->source,
                                                             &flight->destination)) {
        return false;
    }
    CHECK_EQ(status, KVMEM_STATUS_OK);
    CHECK_EQ(flight_info(flight).method, options.transfer.method);
    flight_run(flight);
    return true;
}

#define MOVE_BY(flight, ...) move_by(flight, WITH(flight_options(flight), __VA_ARGS__))

/* Without a request, exactly those that are refused are listed as impossible, though most of them would not be taken anyway. */
static void check_choices(flight *flight, const bool *are_supported) {
    flight_create(flight, it.transfer.method = 0);
    for (uint32_t i = 0; i < NUM(paths); i++) {
        const uint32_t choice = transfer_choice(flight->transfer, paths[i]);
        if ((choice != KVMEM_CHOICE_IMPOSSIBLE) != are_supported[i])
            FAIL("%s is listed with choice %u, and requesting it %s", kvmem_method_name(paths[i]), choice,
                 are_supported[i] ? "succeeds" : "is refused");
    }
}

/* Moves blocks between two sides on all paths. Returns the number of supported paths. */
static size_t move_between(route route, const kvmem_layout_config *source,
                           const kvmem_layout_config *destination, const kv_move *move) {
    size_t supported = 0;
    bool are_supported[NUM(paths)];
    OPENED(flight, flight, .from = route.from, .to = route.to, .source = source, .destination = destination,
           .move = move);
    for (uint32_t i = 0; i < NUM(paths); i++) {
        flight_refill(&flight, 100 + i);
        are_supported[i] = MOVE_BY(&flight, it.transfer.method = paths[i]);
        supported += are_supported[i];
    }
    check_choices(&flight, are_supported);
    return supported;
}

/* All places and all kinds of layouts, with alternating moves. */
TEST(every_path_between_every_two_places) {
    size_t index = 0;
    RETAIN_DEVICE(0);
    for (place from = 0; from < NUM_PLACES; from++) {
        for (place to = 0; to < NUM_PLACES; to++) {
            for (size_t kinds = 0; kinds < KV_NUM_KINDS * KV_NUM_KINDS; kinds++, index++) {
                if (driver_leaves_out(kinds + from + to)) continue;
                const kvmem_layout_config source = side_config(&kv_kinds[kinds / KV_NUM_KINDS]);
                const kvmem_layout_config destination = side_config(&kv_kinds[kinds % KV_NUM_KINDS]);
                const route route = {from, to};
                if (place_is_device(from) || place_is_device(to))
                    CHECK(move_between(route, &source, &destination, &moves[index % NUM(moves)]) > 0);
            }
        }
    }
}

/* The routes that engines use most. */
static const route routes[] = {
    {PLACE_PINNED, PLACE_DEVICE}, {PLACE_DEVICE, PLACE_PINNED}, {PLACE_ADOPTED, PLACE_DEVICE}};

/* Sizes that are not multiples of a vector, and different alignments of the two sides. */
TEST(odd_sizes_at_odd_addresses) {
    static const struct {
        uint64_t page_size, inner_dim, dtype_width, outer_dim, alignment;
    } shapes[] = {
        {1, 1, 1, 1, 1},    {3, 7, 1, 2, 1},     {5, 3, 2, 2, 1},    {1, 15, 1, 2, 1},  {1, 17, 1, 2, 16},
        {4, 33, 4, 1, 1},   {16, 1021, 1, 2, 1}, {7, 1171, 1, 2, 1}, {1, 4095, 1, 2, 1}, {1, 4097, 1, 2, 1},
        {3, 2731, 2, 1, 1}, {16, 1024, 2, 2, 1}, {9, 513, 8, 2, 64},
    };
    RETAIN_DEVICE(0);
    for (size_t route = 0; route < NUM(routes); route++) {
        for (size_t i = 0; i < NUM(shapes); i++) {
            const size_t other = (i / KV_NUM_KINDS + route) % KV_NUM_KINDS;
            kvmem_layout_config configs[] = {side_config(&kv_kinds[i % KV_NUM_KINDS]),
                                             side_config(&kv_kinds[other])};
            for (size_t side = 0; side < 2; side++) {
                configs[side].page_size = shapes[i].page_size;
                configs[side].inner_dim = shapes[i].inner_dim;
                configs[side].dtype_width = shapes[i].dtype_width;
                configs[side].outer_dim = shapes[i].outer_dim;
            }
            configs[route % 2].alignment = shapes[i].alignment;
            move_between(routes[route], &configs[0], &configs[1], &moves[i % 2]);
        }
    }
}

/* A chunk of staging memory contains a few blocks of a layer, a few layers, or all. */
TEST(staging_memory_of_any_size) {
    static const uint64_t sizes[] = {1, 1 << 10, 2000, 3 << 10, 8 << 10, 20000, 1 << 20};
    RETAIN_DEVICE(0);
    for (size_t i = 0; i < KV_NUM_KINDS * KV_NUM_KINDS * 2; i++) {
        const kvmem_layout_config from = side_config(&kv_kinds[i / 2 / KV_NUM_KINDS]);
        const kvmem_layout_config to = side_config(&kv_kinds[i / 2 % KV_NUM_KINDS]);
        OPENED(flight, flight, .from = routes[i % 2].from, .to = routes[i % 2].to, .source = &from,
               .destination = &to);
        for (uint32_t k = 0; k < NUM(sizes); k++) {
            flight.move = &moves[k % NUM(moves)];
            flight_refill(&flight, 50 + k);
            if (sizes[k] < 2) {
                flight_refuse(&flight, KVMEM_STATUS_UNSUPPORTED, "staging_size",
                              it.transfer.method = KVMEM_METHOD_CUDA_STAGED, it.transfer.staging_size = sizes[k]);
            } else {
                CHECK(MOVE_BY(&flight, it.transfer.method = KVMEM_METHOD_CUDA_STAGED,
                              it.transfer.staging_size = sizes[k]));
            }
        }
    }
}

/* Every second of contiguous blocks, also if the memory consists of several ranges. */
TEST(blocks_with_a_constant_stride_are_copied_as_rows) {
    static const place places[] = {PLACE_PINNED, PLACE_CHUNKED, PLACE_DEVICE, PLACE_SPANNED, PLACE_ELASTIC};
    const kv_move move = {every_second, NUM(every_second), 0, 0, 3};
    const kvmem_layout_config config = side_config(&kv_kinds[0]);
    RETAIN_DEVICE(0);
    for (size_t i = 0; i < NUM(places); i++) {
        OPENED(flight, flight, .from = places[i], .to = PLACE_DEVICE, .source = &config, .move = &move);
        CHECK(MOVE_BY(&flight, it.transfer.method = KVMEM_METHOD_CUDA_2D));
    }
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE, .source = &config, .move = &moves[0]);
    flight_refuse(&flight, KVMEM_STATUS_UNSUPPORTED, "no other blocks have a constant stride",
                  it.transfer.method = KVMEM_METHOD_CUDA_2D);
}

TEST(the_number_of_ctas_can_be_limited) {
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE);
    for (uint32_t ctas = 1; ctas < 40; ctas += 6) {
        flight_refill(&flight, ctas);
        CHECK(MOVE_BY(&flight, it.transfer.method = KVMEM_METHOD_CUDA_KERNEL, it.transfer.max_ctas = ctas));
    }
}

/* Blocks in an order with many runs, and more tiles than a CTA has warps. */
TEST(many_blocks_on_every_path) {
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
    for (size_t route = 0; route < NUM(routes); route++)
        CHECK(move_between(routes[route], &from, &to, &move) >= 4 - (route == 2));
}

/* The parameter of the kernel has 240 entries for layers and runs of blocks. With more runs, they are in the
   ring. */
TEST(runs_in_the_parameter_of_the_kernel_or_in_the_ring) {
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
        CHECK(MOVE_BY(&flight, it.transfer.method = KVMEM_METHOD_CUDA_KERNEL,
                      it.transfer.flags = blocks % 2 ? KVMEM_TRANSFER_BY_LAYER : 0));
    }
}

/* Runs that do not fit in the ring get their own memory. */
TEST(more_runs_than_fit_in_the_ring) {
    enum { BLOCKS = 140000 };
    static const uint32_t kernels[] = {KVMEM_METHOD_CUDA_KERNEL, KVMEM_METHOD_CUDA_STAGED};
    const kvmem_layout_config config = WITH(kv_config(&kv_kinds[0]), it.num_blocks = BLOCKS,
                                            it.num_layers = it.page_size = 1, it.inner_dim = 16);
    CLEANUP(test_free) kvmem_block_pair *pairs = test_allocate(BLOCKS * sizeof(*pairs));
    for (uint32_t i = 0; i < BLOCKS; i++) pairs[i] = (kvmem_block_pair){i, BLOCKS - 1 - i};
    const kv_move move = {pairs, BLOCKS, 0, 0, 1};
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE, .source = &config, .move = &move);
    for (uint32_t i = 0; i < NUM(kernels); i++) {
        flight_refill(&flight, 5 + i);
        CHECK(MOVE_BY(&flight, it.transfer.method = kernels[i]));
    }
}

TEST(unsupported_paths_fail_with_the_reason) {
    static const struct {
        route route;
        uint32_t path;
        uint64_t flags;
        const char *reason;
    } unsupported[] = {
        {{PLACE_SYSTEM, PLACE_DEVICE}, KVMEM_METHOD_CUDA_KERNEL, 0, "not page-locked"},
        {{PLACE_DEVICE, PLACE_SYSTEM}, KVMEM_METHOD_CUDA_BATCH, 0, "not page-locked"},
        {{PLACE_SYSTEM, PLACE_DEVICE}, KVMEM_METHOD_CUDA_STAGED, 0, "not page-locked"},
        {{PLACE_DEVICE, PLACE_DEVICE}, KVMEM_METHOD_CUDA_STAGED, 0, "neither side is host"},
        {{PLACE_DEVICE, PLACE_DEVICE}, KVMEM_METHOD_MEMCPY, 0, "memcpy"},
        {{PLACE_PINNED, PLACE_SYSTEM}, KVMEM_METHOD_CUDA_KERNEL, 0, "possible: memcpy"},
        {{PLACE_SYSTEM, PLACE_DEVICE}, 0, KVMEM_TRANSFER_NO_HOST_BOUNCE, "its own host memory"},
        {{PLACE_DEVICE, PLACE_SYSTEM}, 0, KVMEM_TRANSFER_ZERO_COPY, "its own host memory"},
        {{PLACE_DEVICE, PLACE_PINNED}, KVMEM_METHOD_CUDA_STAGED, KVMEM_TRANSFER_ZERO_COPY, "staging memory"},
    };
    for (size_t i = 0; i < NUM(unsupported); i++) {
        OPENED(flight, flight, .from = unsupported[i].route.from, .to = unsupported[i].route.to);
        flight_refuse(&flight, KVMEM_STATUS_UNSUPPORTED, unsupported[i].reason,
                      it.transfer.method = unsupported[i].path,
                      it.transfer.flags = unsupported[i].flags);
    }
}

/* Returns the estimated bytes per second of the path. */
static uint64_t explain(place from, place to, uint32_t path, uint32_t compute, const char *part) {
    OPENED(flight, flight, .from = from, .to = to);
    flight_create(&flight, it.transfer.method = path, it.transfer.compute = compute);
    return flight_explain(&flight, part).bytes_per_second;
}

TEST(the_selection_is_explained) {
    CHECK(explain(PLACE_PINNED, PLACE_SYSTEM, 0, 0, "by memcpy") > 0);
    CHECK(explain(PLACE_SYSTEM, PLACE_DEVICE, 0, 0, "not page-locked") > 0);
    const uint64_t while_busy = explain(PLACE_DEVICE, PLACE_PINNED, 0, 0, "too few for staging");
    CHECK(explain(PLACE_DEVICE, PLACE_PINNED, 0, KVMEM_COMPUTE_IDLE, "slower") >= while_busy);
    explain(PLACE_DEVICE, PLACE_PINNED, 0, 0, "\ncompute: keeps the GPU ");
    explain(PLACE_DEVICE, PLACE_DEVICE, KVMEM_METHOD_CUDA_KERNEL, 0, "\nkernel: spans of ");
    explain(PLACE_DEVICE, PLACE_DEVICE, KVMEM_METHOD_CUDA_KERNEL, 0,
            "costs per span that were fitted on H200 hosts\n");
    explain(PLACE_DEVICE, PLACE_PINNED, KVMEM_METHOD_CUDA_COPY, KVMEM_COMPUTE_IDLE,
            "another method was requested");
}

TEST(names_of_paths) {
    CHECK_STR(kvmem_method_name(KVMEM_METHOD_CUDA_KERNEL), "CUDA kernel");
    CHECK_STR(kvmem_method_name(KVMEM_METHOD_CUDA_STAGED), "CUDA staged");
    CHECK_STR(kvmem_method_name(KVMEM_METHOD_CUDA_BATCH), "CUDA batch");
    CHECK_STR(kvmem_method_name(KVMEM_METHOD_CUDA_2D), "CUDA 2D copy");
    CHECK_STR(kvmem_method_name(KVMEM_METHOD_CUDA_STAGED + 1000), "unknown");
}
