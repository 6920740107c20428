// SPDX-License-Identifier: Apache-2.0
// An engine that resets its device under the library, or destroys a context of its own: what lay there is lost, the
// process lives, and new memory can be had.
#include "engine.h"
#include "filled.h"
#include "own_context.h"
#include "regions.h"
#include "sides.h"
#include "stance.h"

/* All the library can do on the device, from the beginning. */
static void check_works(void) {
    static const kvmem_block_pair pairs[] = {{6, 0}, {0, 5}};
    const kv_move move = {pairs, NUM(pairs), 0, 0, 3};
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    side host;
    side there;
    side_open(&host, PLACE_PINNED, 0, &config, NULL, 1);
    side_open(&there, PLACE_DEVICE, 0, &config, NULL, 2);
    side_move(&host, &there, &move);
    side_close(&host);
    side_close(&there);
}

static void regions_are_destroyed_without_harm(void) {
    kvmem_region *region = region_create_on_gpu(MIB);
    kvmem_pinned_options options;
    kvmem_pinned_options_init(&options, sizeof(options));
    options.size = MIB;
    kvmem_region *pinned = NULL;
    EXPECT_OK(kvmem_region_create_pinned(&options, &pinned, ERR));
    reset_device(0);
    CHECK_EQ(region_info(region).size, MIB);
    kvmem_share *share = NULL;
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, gone, kvmem_share_create_region(region, NULL, &share, ERR));
    CALL(kvmem_region_destroy(region));
    CALL(kvmem_region_destroy(pinned));
    check_works();
}

/* The engine may be given the addresses of what was lost. */
static void memory_of_the_engine_that_lies_there_now_is_left_alone(void) {
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
static void elastic_memory_goes_on_growing(void) {
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

static void a_transfer_fails_and_says_so(void) {
    static const kvmem_block_pair pair[] = {{0, 0}};
    const kv_move move = {pair, 1, 0, 0, 3};
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    side host;
    side there;
    side_open(&host, PLACE_PINNED, 0, &config, NULL, 1);
    side_open(&there, PLACE_DEVICE, 0, &config, NULL, 2);
    const kvmem_transfer_options options = kv_transfer_options(&move);
    kvmem_transfer *transfer = NULL;
    EXPECT_OK(kvmem_transfer_create(host.model.layout, there.model.layout, &options, &transfer, ERR));
    reset_device(0);
    EXPECT_OK(kvmem_transfer_submit(transfer, ERR));
    EXPECT(KVMEM_STATUS_CUDA, kvmem_transfer_wait(transfer, PATIENCE, ERR));
    kvmem_error_cause cause;
    EXPECT_OK(kvmem_error_get_cause(test_last_error(), &cause));
    CHECK_EQ(cause.domain, KVMEM_DOMAIN_CUDA);
    CHECK(cause.code != 0);
    CALL(kvmem_transfer_destroy(transfer));
    side_close(&host);
    side_close(&there);
    check_works();
}

static const kvmem_block_pair two_pairs[] = {{6, 0}, {0, 5}};
static const kv_move two_blocks = {two_pairs, NUM(two_pairs), 0, 0, 3};
static const uint32_t ways[] = {0, KVMEM_PATH_CUDA_COPY, KVMEM_PATH_CUDA_2D, KVMEM_PATH_CUDA_KERNEL,
                                KVMEM_PATH_CUDA_STAGED};

/* By this way, to the host and from there. */
static void prepare(const kvmem_layout *lost, const kvmem_layout *host, uint32_t way,
                    kvmem_transfer *transfers[2]) {
    kvmem_transfer_options options = kv_transfer_options(&two_blocks);
    options.path = way;
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
    kvmem_transfer *transfer = NULL;
    kvmem_share *share = NULL;
    const kvmem_transfer_options options = kv_transfer_options(&two_blocks);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, gone,
                   kvmem_transfer_create(own->layout, host, &options, &transfer, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, gone,
                   kvmem_transfer_create(host, own->layout, &options, &transfer, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, gone,
                   kvmem_layout_checksum(own->layout, blocks, NUM(blocks), &checksum, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, gone,
                   kvmem_share_create_region(own->regions[0], NULL, &share, ERR));
    CHECK_EQ(region_info(own->regions[0]).address, own->address);
}

/* A kernel that read what is gone would take the device's context along; and other memory may lie there by then. */
static void adopted_memory_goes_with_an_engines_own_context(void) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    const kvmem_layout_config in_rows = kv_config(&kv_kinds[2]);
    kvmem_transfer *transfers[NUM(ways)][2] = {{NULL}};
    CUstream stream = NULL;
    own_context own;
    side host;
    retain_device(0);
    enter_device(0);
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    leave_device(0);
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
    enter_device(0);
    CU(cuStreamDestroy_v2(stream));
    leave_device(0);
    release_device(0);
    check_works();
}

static const test_case cases[] = {
    CASE(regions_are_destroyed_without_harm),
    CASE(memory_of_the_engine_that_lies_there_now_is_left_alone),
    CASE(elastic_memory_goes_on_growing),
    CASE(a_transfer_fails_and_says_so),
    CASE(adopted_memory_goes_with_an_engines_own_context),
};
GPU_MAIN
