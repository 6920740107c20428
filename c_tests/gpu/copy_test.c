// SPDX-License-Identifier: Apache-2.0
// Transfers between GPU and host memory, compared byte by byte: the moved blocks arrive, and nothing else
// changes.
#include "gpu_flight.h"
#include "caller_context.h"

static void check_info(const kvmem_transfer_info *info, const flight *flight) {
    const uint64_t pieces =
        flight->move->num_pairs * flight->move->num_layers * flight->source.model.config.outer_dim;
    const bool by_gpu = place_is_device(flight->source.place) || place_is_device(flight->destination.place);
    CHECK(by_gpu ? method_is_cuda(info->method) : info->method == KVMEM_METHOD_MEMCPY);
    CHECK_EQ(info->num_pieces, pieces);
    CHECK_EQ(info->bytes, flight_bytes(flight));
    CHECK(info->num_moves >= 1 && info->num_moves <= pieces);
    CHECK_EQ(info->num_requests, 0);
    CHECK(info->duration_ns > 0);
}

static void copy(route route, const kvmem_layout_config *source, const kvmem_layout_config *destination,
                 const kv_move *move) {
    OPENED(flight, flight, .from = route.from, .to = route.to, .source = source, .destination = destination,
           .move = move, .seed = 11);
    flight_create(&flight, it.transfer.method = 0);
    flight_run(&flight);
    const kvmem_transfer_info info = flight_info(&flight);
    check_info(&info, &flight);
}

/* To all places, between all kinds of layouts. */
static void copy_from(place from) {
    RETAIN_DEVICE(0); /* otherwise each copy creates a context, which is slow */
    for (place to = 0; to < NUM_PLACES; to++) {
        for (size_t kinds = 0; kinds < KV_NUM_KINDS * KV_NUM_KINDS; kinds++) {
            if (driver_leaves_out(kinds + from + to)) continue;
            const kvmem_layout_config source = side_config(&kv_kinds[kinds / KV_NUM_KINDS]);
            const kvmem_layout_config destination = side_config(&kv_kinds[kinds % KV_NUM_KINDS]);
            copy((route){from, to}, &source, &destination, &scattered_move);
        }
    }
}

TEST_CALL(from_system_memory_to_every_place, copy_from(PLACE_SYSTEM))
TEST_CALL(from_pinned_memory_to_every_place, copy_from(PLACE_PINNED))
TEST_CALL(from_pinned_memory_in_chunks_to_every_place, copy_from(PLACE_CHUNKED))
TEST_CALL(from_pinned_memory_of_the_engine_to_every_place, copy_from(PLACE_ENGINE_PINNED))
TEST_CALL(from_device_memory_to_every_place, copy_from(PLACE_DEVICE))
TEST_CALL(from_adopted_memory_to_every_place, copy_from(PLACE_ADOPTED))
TEST_CALL(from_several_mappings_to_every_place, copy_from(PLACE_SPANNED))
TEST_CALL(from_elastic_memory_to_every_place, copy_from(PLACE_ELASTIC))
TEST_CALL(from_elastic_memory_with_holes_to_every_place, copy_from(PLACE_ELASTIC_PARTLY))

/* The routes that engines use most. */
static const route routes[] = {
    {PLACE_PINNED, PLACE_DEVICE},
    {PLACE_DEVICE, PLACE_PINNED},
    {PLACE_ADOPTED, PLACE_DEVICE},
    {PLACE_ELASTIC, PLACE_PINNED},
};

TEST(layer_ranges_are_moved_to_other_layers) {
    static const struct {
        uint64_t source, destination, count;
    } ranges[] = {{0, 0, 1}, {2, 2, 1}, {0, 2, 1}, {2, 0, 1}, {0, 1, 2}, {1, 0, 2}, {1, 1, 2}};
    RETAIN_DEVICE(0);
    for (size_t route = 0; route < NUM(routes); route++) {
        for (size_t i = 0; i < NUM(ranges); i++) {
            const kvmem_layout_config source = side_config(&kv_kinds[i % KV_NUM_KINDS]);
            const kvmem_layout_config destination = side_config(&kv_kinds[(i + route) % KV_NUM_KINDS]);
            const kv_move move = {scattered_move.pairs, scattered_move.num_pairs, ranges[i].source,
                                  ranges[i].destination, ranges[i].count};
            copy(routes[route], &source, &destination, &move);
        }
    }
}

TEST(padding_may_differ_and_is_unchanged) {
    static const uint64_t alignments[] = {1, 64, 512};
    RETAIN_DEVICE(0);
    for (size_t route = 0; route < NUM(routes); route++) {
        for (size_t i = 0; i < NUM(alignments) * NUM(alignments); i++) {
            const kvmem_layout_config source = WITH(side_config(&kv_kinds[i % KV_NUM_KINDS]),
                                                    it.alignment = alignments[i / NUM(alignments)]);
            const kvmem_layout_config destination = WITH(side_config(&kv_kinds[route % KV_NUM_KINDS]),
                                                         it.alignment = alignments[i % NUM(alignments)]);
            copy(routes[route], &source, &destination, &scattered_move);
        }
    }
}

TEST(the_numbers_of_blocks_and_layers_may_differ) {
    static const kvmem_block_pair pairs[] = {{6, 30}, {0, 31}};
    static const kv_move move = {pairs, NUM(pairs), 1, 6, 2};
    for (size_t route = 0; route < NUM(routes); route++) {
        const kvmem_layout_config source = side_config(&kv_kinds[route % KV_NUM_KINDS]);
        const kvmem_layout_config destination = WITH(side_config(&kv_kinds[1]), it.num_blocks = 32,
                                                     it.num_layers = 8);
        copy(routes[route], &source, &destination, &move);
    }
}

TEST(a_source_block_is_copied_to_many_blocks) {
    const kv_move move = KV_MOVE(3, {3, 0}, {3, 1}, {3, 2}, {3, 6});
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    for (size_t route = 0; route < NUM(routes); route++) copy(routes[route], &config, &config, &move);
}

TEST(adjacent_whole_blocks_merge_into_one_move) {
    const kv_move move = KV_MOVE(3, {2, 3}, {3, 4}, {4, 5});
    const kvmem_layout_config config = side_config(&kv_kinds[0]);
    OPENED(flight, flight, .from = PLACE_DEVICE, .to = PLACE_PINNED, .source = &config, .move = &move);
    flight_create(&flight, it.transfer.method = 0);
    flight_run(&flight);
    CHECK_EQ(flight_info(&flight).num_pieces, 3 * 3 * 2);
    CHECK_EQ(flight_info(&flight).num_moves, 1);
}

/* Allowed if no block is both read and written. */
TEST(blocks_are_copied_within_a_layout) {
    static const kvmem_block_pair pairs[] = {{0, 6}, {1, 5}};
    static const place places[] = {PLACE_DEVICE, PLACE_ELASTIC};
    const kv_move move = {pairs, NUM(pairs), 0, 0, 3};
    for (size_t i = 0; i < NUM(places) * KV_NUM_KINDS; i++) {
        const kvmem_layout_config config = side_config(&kv_kinds[i % KV_NUM_KINDS]);
        OPENED(side, side, places[i / KV_NUM_KINDS], 0, &config, NULL, 3);
        const kvmem_transfer_info info = side_move(&side, &side, &move);
        CHECK(method_is_cuda(info.method));
    }
}

/* Every second of 256 blocks of 256 KiB, in reverse order. */
TEST(large_transfers) {
    const kvmem_layout_config from = WITH(kv_config(&kv_kinds[0]), it.num_blocks = 256, it.num_layers = 4,
                                          it.page_size = 16, it.inner_dim = 1024);
    const kvmem_layout_config to = WITH(kv_config(&kv_kinds[2]), it.num_blocks = 256, it.num_layers = 4,
                                        it.page_size = 16, it.inner_dim = 1024);
    kvmem_block_pair pairs[128];
    for (uint32_t i = 0; i < NUM(pairs); i++) pairs[i] = (kvmem_block_pair){2 * i, 255 - i};
    const kv_move move = {pairs, NUM(pairs), 0, 0, 4};
    for (size_t route = 0; route < NUM(routes); route++) copy(routes[route], &from, &to, &move);
}
