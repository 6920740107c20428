// SPDX-License-Identifier: Apache-2.0
// An engine that resets its device under the library: what lay there is lost, the process lives, and new
// memory can be had.
#include "engine.h"
#include "regions.h"
#include "sides.h"
#include "stance.h"

static void reset_device(int device) {
    CU(cuDevicePrimaryCtxReset_v2(device));
}

static kvmem_region *create_device(void) {
    kvmem_device_options options;
    kvmem_device_options_init(&options, sizeof(options));
    options.size = MIB;
    kvmem_region *region = NULL;
    EXPECT_OK(kvmem_region_create_device(&options, &region, ERR));
    return region;
}

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
    kvmem_region *region = create_device();
    kvmem_pinned_options options;
    kvmem_pinned_options_init(&options, sizeof(options));
    options.size = MIB;
    kvmem_region *pinned = NULL;
    EXPECT_OK(kvmem_region_create_pinned(&options, &pinned, ERR));
    reset_device(0);
    CHECK_EQ(region_info(region).size, MIB);
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
        regions[i] = create_device();
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

static const test_case cases[] = {
    CASE(regions_are_destroyed_without_harm),
    CASE(memory_of_the_engine_that_lies_there_now_is_left_alone),
    CASE(elastic_memory_goes_on_growing),
    CASE(a_transfer_fails_and_says_so),
};
GPU_MAIN
