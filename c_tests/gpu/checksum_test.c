// SPDX-License-Identifier: Apache-2.0
// Checksums of blocks in every kind of memory, and verified transfers from and to a GPU.
#include "allocated.h"
#include "elastic_side.h"
#include "engine.h"
#include "gpu_flight.h"
#include "caller_context.h"

static const uint32_t some_blocks[] = {6, 0, 3, 3, 5};
static const kvmem_block_pair pairs[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}};

/* Checks the checksums of blocks with all layers. */
static void check_checksums_of(const side *side, const uint32_t *blocks, uint32_t count) {
    CLEANUP(test_free) uint32_t *checksums = test_allocate(count * sizeof(*checksums));
    memset(checksums, 0xEE, count * sizeof(*checksums));
    EXPECT_OK(kvmem_layout_checksum(side->model.layout, blocks, count, KVMEM_TIMEOUT_FOREVER, checksums,
                                    ERR));
    for (uint32_t i = 0; i < count; i++)
        CHECK_EQ(checksums[i], crc_of_block(&side->model, blocks[i], 0, side->model.config.num_layers));
}

static void check_checksums(const side *side) { check_checksums_of(side, some_blocks, NUM(some_blocks)); }

TEST(checksums_are_computed_in_every_place) {
    static const uint64_t alignments[] = {1, 64};
    RETAIN_DEVICE(0);
    for (place place = 0; place < NUM_PLACES; place++) {
        for (size_t i = 0; i < KV_NUM_KINDS * NUM(alignments); i++) {
            kvmem_layout_config config = side_config(&kv_kinds[i % KV_NUM_KINDS]);
            config.alignment = alignments[i / KV_NUM_KINDS];
            OPENED(side, side, place, 0, &config, NULL, 11);
            check_checksums(&side);
            side_check(&side);
        }
    }
}

/* The size of pieces is not a multiple of a word. */
TEST(checksums_of_odd_sizes) {
    static const place places[] = {PLACE_PINNED, PLACE_DEVICE, PLACE_ELASTIC};
    RETAIN_DEVICE(0);
    for (size_t i = 0; i < NUM(places) * KV_NUM_KINDS; i++) {
        kvmem_layout_config config = WITH(side_config(&kv_kinds[i % KV_NUM_KINDS]), it.page_size = 7,
                                          it.inner_dim = 151, it.dtype_width = 1, it.num_heads = 0);
        OPENED(side, side, places[i / KV_NUM_KINDS], 0, &config, NULL, 12);
        check_checksums(&side);
    }
}

/* Each block has bytes in every plane, and only the first extent of each plane has memory. */
TEST(elastic_blocks_of_several_planes_have_checksums) {
    static const char *const orders[] = {"LHBNC", "NBLHC", "LH/BNC", "HBLNC"};
    RETAIN_DEVICE(0);
    for (size_t i = 0; i < NUM(orders); i++) {
        const kvmem_layout_config config =
            OPTIONS(kvmem_layout_config, it.num_blocks = 8192, it.num_layers = 1, it.outer_dim = 1,
                    it.page_size = 2, it.num_heads = 2, it.inner_dim = 2 * 256, it.dtype_width = 2,
                    it.order = orders[i]);
        OWNED(kvmem_layout) layout = elastic_layout(&config, 0, NULL);
        const kvmem_layout_info strides = layout_info(layout);
        const uint64_t of_extent = elastic_layout_memory(layout).memory_page_size / strides.block_stride;
        CHECK(of_extent < config.num_blocks);
        EXPECT_OK(kvmem_layout_resize(layout, of_extent, ERR));
        kvmem_layout_config one = WITH(config, it.num_blocks = 1, it.order = "BLNHC");
        kvmem_layout *host = NULL;
        EXPECT_OK(build_pinned(0, &one, &host));
        const kvmem_layout_info there = layout_info(host);
        kv_fill((unsigned char *)(uintptr_t)there.bases[0], there.block_stride, 7);
        const kvmem_block_pair pair = {0, (uint32_t)of_extent - 1};
        OWN(kvmem_transfer, transfer, kv_prepare, host, layout,
            REF(JOB(it.run.pairs = &pair, it.run.num_pairs = 1)));
        RUN(transfer);
        uint32_t expected, found;
        EXPECT_OK(kvmem_layout_checksum(host, &pair.source, 1, KVMEM_TIMEOUT_FOREVER, &expected, ERR));
        EXPECT_OK(kvmem_layout_checksum(layout, &pair.destination, 1, KVMEM_TIMEOUT_FOREVER, &found, ERR));
        CHECK_EQ(found, expected);
        CALL(kvmem_layout_destroy(host));
    }
}

/* 40 blocks of 1 MiB, in a permuted order. */
TEST(checksums_of_many_large_blocks) {
    const kvmem_layout_config config = WITH(kv_config(&kv_kinds[1]), it.num_blocks = 40, it.num_layers = 4,
                                            it.page_size = 64, it.inner_dim = 1024);
    uint32_t blocks[40];
    for (uint32_t i = 0; i < NUM(blocks); i++) blocks[i] = (i * 7) % 40;
    OPENED(side, side, PLACE_DEVICE, 0, &config, NULL, 13);
    check_checksums_of(&side, blocks, NUM(blocks));
}

/* More layers and tiles than one launch of the checksum kernel reads. */
TEST(checksums_of_many_layers_and_many_small_blocks) {
    static const struct {
        uint64_t blocks, layers;
    } sizes[] = {{270000, 1}, {20000, 3}, {9, 250}};
    for (size_t i = 0; i < NUM(sizes) * KV_NUM_KINDS; i++) {
        const kvmem_layout_config config = WITH(kv_config(&kv_kinds[i / NUM(sizes)]),
                                                it.num_blocks = sizes[i % NUM(sizes)].blocks,
                                                it.num_layers = sizes[i % NUM(sizes)].layers,
                                                it.page_size = 1, it.inner_dim = 16);
        OPENED(side, side, PLACE_DEVICE, 0, &config, NULL, 14);
        const uint32_t count = (uint32_t)config.num_blocks;
        CLEANUP(test_free) uint32_t *blocks = test_allocate(count * sizeof(*blocks));
        for (uint32_t k = 0; k < count; k++) blocks[k] = count - 1 - k;
        check_checksums_of(&side, blocks, count);
    }
}

/* Computes the expected checksums of the moved blocks from the source. */
static void compute_checksums(const flight *flight, uint32_t *checksums) {
    const kv_move *move = flight->move;
    for (size_t i = 0; i < move->num_pairs; i++)
        checksums[i] = crc_of_block(&flight->source.model, move->pairs[i].source, move->source_layer,
                                    move->num_layers);
}

/* Runs the same transfer twice. */
static void run_twice(const flight *flight, kvmem_status status, const char *part) {
    for (int again = 0; again < 2; again++) {
        flight_submit(flight);
        flight_expect_end(flight, status, part);
    }
}

static void verify_between(route route, const kv_move *move) {
    const kvmem_layout_config source = side_config(&kv_kinds[0]), destination = side_config(&kv_kinds[2]);
    OPENED(flight, flight, .from = route.from, .to = route.to, .source = &source, .destination = &destination,
           .move = move);
    uint32_t checksums[NUM(pairs)];
    compute_checksums(&flight, checksums);
    flight_create(&flight, it.run.checksums = checksums);
    run_twice(&flight, KVMEM_STATUS_OK, "");
    flight_create(&flight, it.run.flags = KVMEM_SUBMIT_VERIFY);
    run_twice(&flight, KVMEM_STATUS_OK, "");
    checksums[2] += 1;
    flight_create(&flight, it.run.checksums = checksums);
    run_twice(&flight, KVMEM_STATUS_CORRUPT,
              "1 of 4 moved blocks are corrupt: the first is pair 2, source block 1 and destination block 6");
    flight_check_moved(&flight);
}

TEST(transfers_from_and_to_a_gpu_are_verified) {
    static const route routes[] = {
        {PLACE_PINNED, PLACE_DEVICE}, {PLACE_DEVICE, PLACE_PINNED},   {PLACE_SYSTEM, PLACE_ELASTIC},
        {PLACE_DEVICE, PLACE_SYSTEM}, {PLACE_ADOPTED, PLACE_ELASTIC}, {PLACE_ELASTIC_PARTLY, PLACE_PINNED},
    };
    static const kv_move moves[] = {{pairs, NUM(pairs), 0, 0, 3}, {pairs, NUM(pairs), 1, 0, 2}};
    RETAIN_DEVICE(0);
    for (size_t i = 0; i < NUM(routes) * NUM(moves); i++)
        verify_between(routes[i % NUM(routes)], &moves[i / NUM(routes)]);
}

/* The host compares checksums after the work on the stream. It is not notified of launches of a graph. */
TEST(transfers_on_a_stream_are_verified_but_not_in_graphs) {
    static const kv_move move = {pairs, NUM(pairs), 0, 0, 3};
    static const kvmem_status expected[] = {KVMEM_STATUS_OK, KVMEM_STATUS_CORRUPT};
    uint32_t checksums[NUM(pairs)];
    OPENED(stream, stream, 0);
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE, .move = &move);
    compute_checksums(&flight, checksums);
    for (uint32_t i = 0; i < NUM(expected); i++) {
        checksums[0] += i;
        flight_create(&flight, it.run.checksums = checksums);
        flight_submit_on(&flight, stream.handle);
        EXPECT(expected[i], kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
        stream_begin_capture(&stream, CU_STREAM_CAPTURE_MODE_RELAXED);
        EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "graph",
                       kvmem_transfer_submit_on_stream(flight.transfer, NULL, stream.handle, ERR));
        stream_drop_capture(&stream);
    }
    flight_check_moved(&flight);
}
