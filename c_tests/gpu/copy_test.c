// SPDX-License-Identifier: Apache-2.0
// Transfers between GPU and host memory, byte by byte: what moves, where to, and that nothing else changes.
#include "sides.h"
#include "stance.h"

/* Ids scattered at both ends, runs that merge and runs that only look as if they did. */
static const kvmem_block_pair scattered[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}, {4, 4}, {2, 1}};
static const kv_move all_layers = {scattered, NUM(scattered), 0, 0, 3};

static void check_info(const kvmem_transfer_info *info, const side *source, const side *destination,
                       const kv_move *move) {
    const uint64_t pieces = move->num_pairs * move->num_layers * source->model.config.outer_dim;
    const bool by_gpu = place_is_device(source->place) || place_is_device(destination->place);
    CHECK(by_gpu ? path_is_cuda(info->path) : info->path == KVMEM_PATH_MEMCPY);
    CHECK_EQ(info->num_pieces, pieces);
    CHECK_EQ(info->bytes, pieces * kv_piece_size(&source->model.config));
    CHECK(info->num_moves >= 1 && info->num_moves <= pieces);
    CHECK_EQ(info->num_requests, 0);
    CHECK(info->duration_ns > 0);
}

static void copy(place from, const kvmem_layout_config *source_config, place to,
                 const kvmem_layout_config *destination_config, const kv_move *move) {
    OPENED(side, source, from, 0, source_config, NULL, 11);
    OPENED(side, destination, to, 0, destination_config, NULL, 22);
    const kvmem_transfer_info info = side_move(&source, &destination, move);
    check_info(&info, &source, &destination, move);
}

/* All places and all kinds of layout, on this side fixed and on the other in turn. */
static void copy_from(place from) {
    retain_device(0); /* or each copy would make a context of its own, which takes the longest */
    for (place to = 0; to < NUM_PLACES; to++) {
        for (size_t kinds = 0; kinds < KV_NUM_KINDS * KV_NUM_KINDS; kinds++) {
            const kvmem_layout_config source = side_config(&kv_kinds[kinds / KV_NUM_KINDS]);
            const kvmem_layout_config destination = side_config(&kv_kinds[kinds % KV_NUM_KINDS]);
            copy(from, &source, to, &destination, &all_layers);
        }
    }
    release_device(0);
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

/* The ways between a GPU and the rest that engines take most. */
static const struct {
    place from, to;
} ways[] = {
    {PLACE_PINNED, PLACE_DEVICE},
    {PLACE_DEVICE, PLACE_PINNED},
    {PLACE_ADOPTED, PLACE_DEVICE},
    {PLACE_ELASTIC, PLACE_PINNED},
};

TEST(layer_ranges_land_at_other_layers) {
    static const struct {
        uint64_t source, destination, count;
    } ranges[] = {{0, 0, 1}, {2, 2, 1}, {0, 2, 1}, {2, 0, 1}, {0, 1, 2}, {1, 0, 2}, {1, 1, 2}};
    RETAIN_DEVICE(0);
    for (size_t way = 0; way < NUM(ways); way++) {
        for (size_t i = 0; i < NUM(ranges); i++) {
            const kvmem_layout_config source = side_config(&kv_kinds[i % KV_NUM_KINDS]);
            const kvmem_layout_config destination = side_config(&kv_kinds[(i + way) % KV_NUM_KINDS]);
            const kv_move move = {scattered, NUM(scattered), ranges[i].source, ranges[i].destination,
                                  ranges[i].count};
            copy(ways[way].from, &source, ways[way].to, &destination, &move);
        }
    }
}

TEST(padding_may_differ_and_stays_as_it_is) {
    static const uint64_t alignments[] = {1, 64, 512};
    RETAIN_DEVICE(0);
    for (size_t way = 0; way < NUM(ways); way++) {
        for (size_t i = 0; i < NUM(alignments) * NUM(alignments); i++) {
            kvmem_layout_config source = side_config(&kv_kinds[i % KV_NUM_KINDS]);
            kvmem_layout_config destination = side_config(&kv_kinds[way % KV_NUM_KINDS]);
            source.alignment = alignments[i / NUM(alignments)];
            destination.alignment = alignments[i % NUM(alignments)];
            copy(ways[way].from, &source, ways[way].to, &destination, &all_layers);
        }
    }
}

TEST(the_numbers_of_blocks_and_layers_may_differ) {
    static const kvmem_block_pair pairs[] = {{6, 30}, {0, 31}};
    const kv_move move = {pairs, NUM(pairs), 1, 6, 2};
    for (size_t way = 0; way < NUM(ways); way++) {
        const kvmem_layout_config source = side_config(&kv_kinds[way % KV_NUM_KINDS]);
        kvmem_layout_config destination = WITH(side_config(&kv_kinds[1]), it.num_blocks = 32,
                                               it.num_layers = 8);
        copy(ways[way].from, &source, ways[way].to, &destination, &move);
    }
}

TEST(one_source_may_feed_many_destinations) {
    static const kvmem_block_pair fan_out[] = {{3, 0}, {3, 1}, {3, 2}, {3, 6}};
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    const kv_move move = {fan_out, NUM(fan_out), 0, 0, 3};
    for (size_t way = 0; way < NUM(ways); way++) {
        copy(ways[way].from, &config, ways[way].to, &config, &move);
    }
}

TEST(whole_neighbouring_blocks_merge_into_one_move) {
    static const kvmem_block_pair run[] = {{2, 3}, {3, 4}, {4, 5}};
    const kvmem_layout_config config = side_config(&kv_kinds[0]);
    const kv_move move = {run, NUM(run), 0, 0, 3};
    OPENED(side, source, PLACE_DEVICE, 0, &config, NULL, 1);
    OPENED(side, destination, PLACE_PINNED, 0, &config, NULL, 2);
    const kvmem_transfer_info info = side_move(&source, &destination, &move);
    CHECK_EQ(info.num_pieces, 3 * 3 * 2);
    CHECK_EQ(info.num_moves, 1);
}

/* Blocks may move within one layout while none is both read and written. */
TEST(a_layout_copies_to_itself) {
    static const kvmem_block_pair pairs[] = {{0, 6}, {1, 5}};
    static const place places[] = {PLACE_DEVICE, PLACE_ELASTIC};
    const kv_move move = {pairs, NUM(pairs), 0, 0, 3};
    for (size_t i = 0; i < NUM(places) * KV_NUM_KINDS; i++) {
        const kvmem_layout_config config = side_config(&kv_kinds[i % KV_NUM_KINDS]);
        OPENED(side, side, places[i / KV_NUM_KINDS], 0, &config, NULL, 3);
        const kvmem_transfer_info info = side_move(&side, &side, &move);
        CHECK(path_is_cuda(info.path));
    }
}

/* 256 blocks of 256 KiB, every second one to a place at the other end. */
TEST(large_transfers_are_exact_too) {
    kvmem_layout_config from = WITH(kv_config(&kv_kinds[0]), it.num_blocks = 256, it.num_layers = 4,
                                    it.page_size = 16, it.inner_dim = 1024);
    kvmem_layout_config to = from;
    to.kind = KVMEM_LAYOUT_LAYER_SEPARATE;
    to.block_dim = KVMEM_BLOCK_DIM_SECOND;
    kvmem_block_pair pairs[128];
    for (uint32_t i = 0; i < NUM(pairs); i++) {
        pairs[i] = (kvmem_block_pair){2 * i, 255 - i};
    }
    const kv_move move = {pairs, NUM(pairs), 0, 0, 4};
    for (size_t way = 0; way < NUM(ways); way++) {
        copy(ways[way].from, &from, ways[way].to, &to, &move);
    }
}
