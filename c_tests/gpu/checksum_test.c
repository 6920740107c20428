// SPDX-License-Identifier: Apache-2.0
// Checksums of blocks in every kind of memory, and verified transfers from and to a GPU.
#include "driver.h"
#include "engine.h"
#include "sides.h"
#include "stance.h"

static const uint32_t some_blocks[] = {6, 0, 3, 3, 5};
static const kvmem_block_pair pairs[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}};

static void check_checksums(const side *side) {
    uint32_t checksums[NUM(some_blocks)];
    memset(checksums, 0xEE, sizeof(checksums));
    EXPECT_OK(kvmem_layout_checksum(side->model.layout, some_blocks, NUM(some_blocks), checksums, ERR));
    for (size_t i = 0; i < NUM(some_blocks); i++) {
        CHECK_EQ(checksums[i], crc_of_block(&side->model, some_blocks[i], 0, side->model.config.num_layers));
    }
}

TEST(every_place_has_the_checksums_of_the_bytes) {
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

/* Pieces whose size is no multiple of a word. */
TEST(odd_sizes_have_the_same_checksums) {
    static const place places[] = {PLACE_PINNED, PLACE_DEVICE, PLACE_ELASTIC};
    RETAIN_DEVICE(0);
    for (size_t i = 0; i < NUM(places) * KV_NUM_KINDS; i++) {
        kvmem_layout_config config = WITH(side_config(&kv_kinds[i % KV_NUM_KINDS]), it.page_size = 7,
                                          it.inner_dim = 151, it.dtype_width = 1, it.num_heads = 0);
        OPENED(side, side, places[i / KV_NUM_KINDS], 0, &config, NULL, 12);
        check_checksums(&side);
    }
}

/* 40 blocks of 1 MiB in an order of their own. */
TEST(many_blocks_are_read_part_by_part) {
    kvmem_layout_config config = WITH(kv_config(&kv_kinds[1]), it.num_blocks = 40, it.num_layers = 4,
                                      it.page_size = 64, it.inner_dim = 1024);
    uint32_t blocks[40];
    uint32_t checksums[40];
    for (uint32_t i = 0; i < NUM(blocks); i++) {
        blocks[i] = (i * 7) % 40;
    }
    OPENED(side, side, PLACE_DEVICE, 0, &config, NULL, 13);
    EXPECT_OK(kvmem_layout_checksum(side.model.layout, blocks, NUM(blocks), checksums, ERR));
    for (size_t i = 0; i < NUM(blocks); i++) {
        CHECK_EQ(checksums[i], crc_of_block(&side.model, blocks[i], 0, 4));
    }
}

/* More layers, and more tiles, than the library has a GPU read at a time. */
TEST(many_layers_and_many_small_blocks_are_put_together) {
    static const struct {
        uint64_t blocks, layers;
    } sizes[] = {{270000, 1}, {20000, 3}, {9, 250}};
    for (size_t i = 0; i < NUM(sizes) * KV_NUM_KINDS; i++) {
        kvmem_layout_config config = WITH(kv_config(&kv_kinds[i / NUM(sizes)]),
                                          it.num_blocks = sizes[i % NUM(sizes)].blocks,
                                          it.num_layers = sizes[i % NUM(sizes)].layers, it.page_size = 1,
                                          it.inner_dim = 16);
        OPENED(side, side, PLACE_DEVICE, 0, &config, NULL, 14);
        const uint32_t count = (uint32_t)config.num_blocks;
        CLEANUP(test_free) uint32_t *blocks = test_allocate(count * sizeof(*blocks));
        CLEANUP(test_free) uint32_t *checksums = test_allocate(count * sizeof(*checksums));
        for (uint32_t k = 0; k < count; k++) {
            blocks[k] = count - 1 - k;
        }
        EXPECT_OK(kvmem_layout_checksum(side.model.layout, blocks, count, checksums, ERR));
        for (uint32_t k = 0; k < count; k++) {
            CHECK_EQ(checksums[k], crc_of_block(&side.model, blocks[k], 0, config.num_layers));
        }
    }
}

static void end(kvmem_transfer *transfer, kvmem_status status, const char *part) {
    EXPECT_OK(kvmem_transfer_submit(transfer, ERR));
    EXPECT_MESSAGE(status, part, kvmem_transfer_wait(transfer, PATIENCE, ERR));
    EXPECT(status, kvmem_transfer_poll(transfer, ERR));
}

static void run(const side *source, const side *destination, const kv_move *move, const uint32_t *checksums,
                uint64_t flags, kvmem_status status, const char *part) {
    kvmem_transfer_options options = WITH(kv_transfer_options(move), it.checksums = checksums,
                                          it.flags = flags);
    OWN(kvmem_transfer, transfer, kvmem_transfer_create, source->model.layout, destination->model.layout,
        &options);
    end(transfer, status, part);
    end(transfer, status, part);
}

static void verify_between(place from, place to, const kv_move *move) {
    const kvmem_layout_config source_config = side_config(&kv_kinds[0]);
    const kvmem_layout_config destination_config = side_config(&kv_kinds[2]);
    OPENED(side, source, from, 0, &source_config, NULL, 21);
    OPENED(side, destination, to, 0, &destination_config, NULL, 22);
    uint32_t checksums[NUM(pairs)];
    for (size_t i = 0; i < NUM(pairs); i++) {
        checksums[i] = crc_of_block(&source.model, pairs[i].source, move->source_layer, move->num_layers);
    }
    run(&source, &destination, move, checksums, 0, KVMEM_STATUS_OK, "");
    run(&source, &destination, move, NULL, KVMEM_TRANSFER_VERIFY, KVMEM_STATUS_OK, "");
    checksums[2] += 1;
    char found[160];
    snprintf(found, sizeof(found),
             "1 of 4 moved blocks are corrupt: the first is pair 2, source block 1 and destination block 6");
    run(&source, &destination, move, checksums, 0, KVMEM_STATUS_CORRUPT, found);
    kv_expect_moved(&destination.model, &source.model, move);
    side_check(&source);
    side_check(&destination);
}

TEST(transfers_from_and_to_a_gpu_are_verified) {
    static const struct {
        place from, to;
    } ways[] = {
        {PLACE_PINNED, PLACE_DEVICE}, {PLACE_DEVICE, PLACE_PINNED},   {PLACE_SYSTEM, PLACE_ELASTIC},
        {PLACE_DEVICE, PLACE_SYSTEM}, {PLACE_ADOPTED, PLACE_ELASTIC}, {PLACE_ELASTIC_PARTLY, PLACE_PINNED},
    };
    static const kv_move moves[] = {{pairs, NUM(pairs), 0, 0, 3}, {pairs, NUM(pairs), 1, 0, 2}};
    RETAIN_DEVICE(0);
    for (size_t i = 0; i < NUM(ways) * NUM(moves); i++) {
        verify_between(ways[i % NUM(ways)].from, ways[i % NUM(ways)].to, &moves[i / NUM(ways)]);
    }
}

static CUstream open_stream(void) {
    CUstream stream = NULL;
    CU_ON(0, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static void close_stream(CUstream stream) {
    CU_ON(0, cuStreamDestroy_v2(stream));
}

/* The host compares when the stream has moved them; a graph's runs it does not see. */
TEST(transfers_on_a_stream_are_verified_and_graphs_refused) {
    const kv_move move = {pairs, NUM(pairs), 0, 0, 3};
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    uint32_t checksums[NUM(pairs)];
    RETAIN_DEVICE(0);
    OPENED(side, source, PLACE_PINNED, 0, &config, NULL, 31);
    OPENED(side, destination, PLACE_DEVICE, 0, &config, NULL, 32);
    for (size_t i = 0; i < NUM(pairs); i++) {
        checksums[i] = crc_of_block(&source.model, pairs[i].source, 0, 3);
    }
    for (int i = 0; i < 2; i++) {
        const kvmem_status expected = i == 0 ? KVMEM_STATUS_OK : KVMEM_STATUS_CORRUPT;
        checksums[0] += (uint32_t)i;
        kvmem_transfer_options options = WITH(kv_transfer_options(&move), it.checksums = checksums);
        OWN(kvmem_transfer, transfer, kvmem_transfer_create, source.model.layout, destination.model.layout,
            &options);
        const CUstream stream = open_stream();
        EXPECT_OK(kvmem_transfer_submit_on_stream(transfer, stream, ERR));
        EXPECT(expected, kvmem_transfer_wait(transfer, PATIENCE, ERR));
        CU_ON(0, cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "graph",
                       kvmem_transfer_submit_on_stream(transfer, stream, ERR));
        CUgraph graph = NULL;
        enter_device(0);
        CU(cuStreamEndCapture(stream, &graph));
        CU(cuGraphDestroy(graph));
        leave_device(0);
        close_stream(stream);
    }
    side_check_moved(&destination, &source, &move);
}
