// SPDX-License-Identifier: Apache-2.0
// An engine that resets its device under the library, or destroys a context of its own: what lay there is
// lost, the process lives, and new memory can be had.
#include "engine.h"
#include "filled.h"
#include "own_context.h"
#include "sides.h"
#include "stance.h"

/* All the library can do on the device, from the beginning. */
static void check_works(void) {
    static const kvmem_block_pair pairs[] = {{6, 0}, {0, 5}};
    const kv_move move = {pairs, NUM(pairs), 0, 0, 3};
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    OPENED(side, host, PLACE_PINNED, 0, &config, NULL, 1);
    OPENED(side, there, PLACE_DEVICE, 0, &config, NULL, 2);
    side_move(&host, &there, &move);
}

TEST(regions_are_destroyed_without_harm) {
    kvmem_region *region = region_create_on_gpu(MIB);
    kvmem_pinned_options options = OPTIONS(kvmem_pinned_options, it.size = MIB);
    GET(kvmem_region *, pinned, kvmem_region_create_pinned, &options);
    reset_device(0);
    CHECK_EQ(region_info(region).size, MIB);
    REFUSE(KVMEM_STATUS_INVALID_STATE, gone, kvmem_share_create_region, region, NULL);
    CALL(kvmem_region_destroy(region));
    CALL(kvmem_region_destroy(pinned));
    check_works();
}

/* The engine may be given the addresses of what was lost. */
TEST(memory_of_the_engine_that_lies_there_now_is_left_alone) {
    enum { COUNT = 16 };
    CUdeviceptr engine[COUNT];
    kvmem_region *regions[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        regions[i] = region_create_on_gpu(MIB);
    }
    reset_device(0);
    retain_device(0);
    for (size_t i = 0; i < COUNT; i++) {
        engine[i] = engine_allocate(0, MIB);
    }
    for (size_t i = 0; i < COUNT; i++) {
        CALL(kvmem_region_destroy(regions[i]));
    }
    for (size_t i = 0; i < COUNT; i++) {
        const unsigned char byte = (unsigned char)i;
        write_device(0, engine[i], &byte, 1);
        engine_free(0, engine[i]); /* which fails where it was freed already */
    }
    release_device(0);
    check_works();
}

/* It needs no context, and is none the worse. */
TEST(elastic_memory_goes_on_growing) {
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    side elastic;
    retain_device(0);
    side_open(&elastic, PLACE_ELASTIC_PARTLY, 0, &config, NULL, 1);
    reset_device(0);
    EXPECT_OK(kvmem_layout_resize(elastic.model.layout, 2 * config.num_blocks, ERR));
    EXPECT_OK(kvmem_layout_resize(elastic.model.layout, config.num_blocks, ERR));
    side_close(&elastic);
    release_device(0);
    check_works();
}

static const kvmem_block_pair two_pairs[] = {{6, 0}, {0, 5}};
static const kv_move two_blocks = {two_pairs, NUM(two_pairs), 0, 0, 3};
static const uint32_t ways[] = {0, KVMEM_PATH_CUDA_COPY, KVMEM_PATH_CUDA_2D, KVMEM_PATH_CUDA_KERNEL,
                                KVMEM_PATH_CUDA_STAGED};

/* By this way, to the host and from there. */
static void prepare(const kvmem_layout *lost, const kvmem_layout *host, uint32_t way,
                    kvmem_transfer *transfers[2]) {
    kvmem_transfer_options options = WITH(kv_transfer_options(&two_blocks), it.path = way);
    EXPECT_OK(kvmem_transfer_create(lost, host, &options, &transfers[0], ERR));
    EXPECT_OK(kvmem_transfer_create(host, lost, &options, &transfers[1], ERR));
}

/* Refused before anything runs: it is as if it had never been submitted. */
static void expect_refused(kvmem_transfer *transfer, CUstream stream) {
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, gone, kvmem_transfer_submit(transfer, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, gone, kvmem_transfer_submit_on_stream(transfer, stream, ERR));
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_transfer_poll(transfer, ERR));
    CALL(kvmem_transfer_destroy(transfer));
}

static void expect_nothing_new(const own_context *own, const kvmem_layout *host) {
    static const uint32_t blocks[] = {0};
    uint32_t checksum = 0;
    const kvmem_transfer_options options = kv_transfer_options(&two_blocks);
    REFUSE(KVMEM_STATUS_INVALID_STATE, gone, kvmem_transfer_create, own->layout, host, &options);
    REFUSE(KVMEM_STATUS_INVALID_STATE, gone, kvmem_transfer_create, host, own->layout, &options);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, gone,
                   kvmem_layout_checksum(own->layout, blocks, NUM(blocks), &checksum, ERR));
    REFUSE(KVMEM_STATUS_INVALID_STATE, gone, kvmem_share_create_region, own->regions[0], NULL);
    CHECK_EQ(region_info(own->regions[0]).address, own->address);
}

static void expect_not_created(const kvmem_layout *source, const kvmem_layout *destination, uint32_t way) {
    kvmem_transfer_options options = WITH(kv_transfer_options(&two_blocks), it.path = way);
    REFUSE(KVMEM_STATUS_INVALID_STATE, gone, kvmem_transfer_create, source, destination, &options);
}

/* The context is the engine's again, with its memory: whatever was prepared before is refused before it
   runs. */
TEST(what_was_prepared_before_a_reset_is_refused) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    const kvmem_layout_config in_rows = kv_config(&kv_kinds[2]);
    kvmem_transfer *lost[NUM(ways)][2] = {{NULL}};
    kvmem_transfer *kept[NUM(ways)][2] = {{NULL}};
    side pinned;
    side device;
    side system;
    side elastic;
    retain_device(0);
    side_open(&pinned, PLACE_PINNED, 0, &in_rows, NULL, 1);
    side_open(&device, PLACE_DEVICE, 0, &config, NULL, 2);
    side_open(&system, PLACE_SYSTEM, 0, &in_rows, NULL, 3);
    side_open(&elastic, PLACE_ELASTIC, 0, &config, NULL, 4);
    for (size_t i = 0; i < NUM(ways); i++) {
        prepare(device.model.layout, pinned.model.layout, ways[i], lost[i]);
    }
    for (size_t i = 0; i < 2; i++) { /* the ways of pageable memory */
        prepare(elastic.model.layout, system.model.layout, ways[i], kept[i]);
    }
    reset_device(0);
    retain_device(0);
    const uint64_t engine = engine_allocate(0, MIB);
    fill_device(0, engine, MIB, 0x5A);
    CUstream stream = NULL;
    CU_ON(0, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (size_t i = 0; i < NUM(ways); i++) {
        expect_not_created(device.model.layout, pinned.model.layout, ways[i]);
        expect_not_created(pinned.model.layout, elastic.model.layout, ways[i]);
        expect_refused(lost[i][0], stream);
        expect_refused(lost[i][1], stream);
        if (kept[i][0] != NULL) {
            expect_refused(kept[i][0], stream);
            expect_refused(kept[i][1], stream);
        }
    }
    side_move(&elastic, &system, &two_blocks); /* memory of no context */
    side_close(&pinned);
    side_close(&device);
    side_close(&system);
    side_close(&elastic);
    check_device(0, engine, MIB, 0x5A);
    engine_free(0, engine);
    enter_device(0);
    CU(cuStreamDestroy_v2(stream));
    CU(cuCtxSynchronize());
    leave_device(0);
    release_device(0);
    release_device(0);
    check_works();
}

/* With new memory of the host's, by a new kernel. */
TEST(elastic_memory_moves_on_by_every_path) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    const kvmem_layout_config in_rows = kv_config(&kv_kinds[2]);
    for (size_t i = 0; i < NUM(ways); i++) {
        side elastic;
        side before;
        side after;
        kvmem_transfer *transfers[2] = {NULL};
        retain_device(0);
        side_open(&elastic, PLACE_ELASTIC, 0, &config, NULL, 1);
        side_open(&before, PLACE_PINNED, 0, &in_rows, NULL, 2);
        side_move(&elastic, &before, &two_blocks);
        prepare(elastic.model.layout, before.model.layout, ways[i], transfers);
        RUN(transfers[0]);
        reset_device(0);
        retain_device(0);
        side_open(&after, PLACE_PINNED, 0, &in_rows, NULL, 3);
        CALL(kvmem_transfer_destroy(transfers[0]));
        CALL(kvmem_transfer_destroy(transfers[1]));
        prepare(elastic.model.layout, after.model.layout, ways[i], transfers);
        for (size_t direction = 0; direction < NUM(transfers); direction++) {
            side *source = direction == 0 ? &elastic : &after;
            side *destination = direction == 0 ? &after : &elastic;
            side_refill(source, 10 + (uint32_t)direction);
            RUN(transfers[direction]);
            side_check_moved(destination, source, &two_blocks);
            CALL(kvmem_transfer_destroy(transfers[direction]));
        }
        side_close(&before);
        side_close(&after);
        side_close(&elastic);
        release_device(0);
        release_device(0);
    }
    check_works();
}

/* It has ended before the reset, or fails with what the driver says. */
TEST(a_transfer_in_flight_ends) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    const kvmem_layout_config in_rows = kv_config(&kv_kinds[2]);
    for (size_t i = 0; i < 2 * NUM(ways); i++) {
        side host;
        side there;
        kvmem_transfer *transfers[2] = {NULL};
        side_open(&host, PLACE_PINNED, 0, &in_rows, NULL, 1);
        side_open(&there, PLACE_DEVICE, 0, &config, NULL, 2);
        prepare(there.model.layout, host.model.layout, ways[i / 2], transfers);
        EXPECT_OK(kvmem_transfer_submit(transfers[i % 2], ERR));
        reset_device(0);
        if (kvmem_transfer_wait(transfers[i % 2], PATIENCE, ERR) != KVMEM_STATUS_OK) {
            kvmem_error_cause cause;
            EXPECT_OK(kvmem_error_get_cause(test_last_error(), &cause));
            CHECK_EQ(cause.domain, KVMEM_DOMAIN_CUDA);
            CHECK(cause.code != 0);
        }
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, gone, kvmem_transfer_submit(transfers[i % 2], ERR));
        CALL(kvmem_transfer_destroy(transfers[0]));
        CALL(kvmem_transfer_destroy(transfers[1]));
        side_close(&host);
        side_close(&there);
        check_works();
    }
}

/* A kernel that read what is gone would take the device's context along; and other memory may lie there by
   then. */
TEST(adopted_memory_goes_with_an_engines_own_context) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    const kvmem_layout_config in_rows = kv_config(&kv_kinds[2]);
    kvmem_transfer *transfers[NUM(ways)][2] = {{NULL}};
    CUstream stream = NULL;
    own_context own;
    side host;
    retain_device(0);
    CU_ON(0, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    own_context_open(&own, &config);
    side_open(&host, PLACE_PINNED, 0, &in_rows, NULL, 1);
    for (size_t i = 0; i < NUM(ways); i++) {
        prepare(own.layout, host.model.layout, ways[i], transfers[i]);
    }
    CU(cuCtxDestroy_v2(own.context));
    const uint64_t engine = engine_allocate(0, MIB);
    fill_device(0, engine, MIB, 0x5A);
    expect_nothing_new(&own, host.model.layout);
    for (size_t i = 0; i < NUM(ways); i++) {
        expect_refused(transfers[i][0], stream);
        expect_refused(transfers[i][1], stream);
    }
    side_check(&host);
    side_close(&host);
    own_context_close(&own);
    check_device(0, engine, MIB, 0x5A);
    engine_free(0, engine);
    CU_ON(0, cuStreamDestroy_v2(stream));
    release_device(0);
    check_works();
}
