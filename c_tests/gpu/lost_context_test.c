// SPDX-License-Identifier: Apache-2.0
// An engine that resets its device under the library, or destroys a context of its own: what lay there is
// lost, the process lives, and new memory can be had.
#include "filled.h"
#include "gpu_flight.h"
#include "own_context.h"
#include "stance.h"

/* All the library can do on the device, from the beginning. */
static void check_works(void) {
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE);
    flight_create(&flight, it.path = 0);
    flight_run(&flight);
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
    for (size_t i = 0; i < COUNT; i++) regions[i] = region_create_on_gpu(MIB);
    reset_device(0);
    RETAIN_DEVICE(0);
    for (size_t i = 0; i < COUNT; i++) engine[i] = engine_allocate(0, MIB);
    for (size_t i = 0; i < COUNT; i++) CALL(kvmem_region_destroy(regions[i]));
    for (size_t i = 0; i < COUNT; i++) {
        const unsigned char byte = (unsigned char)i;
        write_device(0, engine[i], &byte, 1);
        engine_free(0, engine[i]); /* which fails where it was freed already */
    }
    check_works();
}

/* It needs no context, and is none the worse. */
TEST(elastic_memory_goes_on_growing) {
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    RETAIN_DEVICE(0);
    OPENED(side, elastic, PLACE_ELASTIC_PARTLY, 0, &config, NULL, 1);
    reset_device(0);
    EXPECT_OK(kvmem_layout_resize(elastic.model.layout, 2 * config.num_blocks, ERR));
    EXPECT_OK(kvmem_layout_resize(elastic.model.layout, config.num_blocks, ERR));
    check_works();
}

static const kv_move two_blocks = KV_MOVE(3, {6, 0}, {0, 5});
static const uint32_t paths[] = {0, KVMEM_PATH_CUDA_COPY, KVMEM_PATH_CUDA_2D, KVMEM_PATH_CUDA_KERNEL,
                                 KVMEM_PATH_CUDA_STAGED};
/* Of which pageable memory takes the first. */
#define PAGEABLE_PATHS 2

/* From memory of a GPU to the host, where blocks are in rows. */
typedef flight host_flight;
#define host_flight_close flight_close
static void host_flight_open(flight *flight, place from, place to) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    const kvmem_layout_config in_rows = kv_config(&kv_kinds[2]);
    flight_open(flight, .from = from, .to = to, .source = &config, .destination = &in_rows,
                .move = &two_blocks);
}

/* Transfers to the host and from there by the first paths, which are created and not run. */
typedef kvmem_transfer *prepared[NUM(paths)][2];
static void prepare(flight *flight, size_t num_paths, prepared transfers) {
    for (size_t i = 0; i < 2 * num_paths; i++) {
        transfers[i / 2][i % 2] = flight_create_another(flight, it.path = paths[i / 2]);
        flight_turn_round(flight);
    }
}

/* Refused before anything runs: it is as if they had never been submitted. */
static void expect_refused(prepared transfers, size_t num_paths) {
    OPENED(stream, stream, 0);
    for (size_t i = 0; i < 2 * num_paths; i++) {
        OWNED(kvmem_transfer) transfer = transfers[i / 2][i % 2];
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, gone, kvmem_transfer_submit(transfer, ERR));
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, gone,
                       kvmem_transfer_submit_on_stream(transfer, stream.handle, ERR));
        EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_transfer_poll(transfer, ERR));
    }
}

/* Memory of the engine's, which may be where lost memory was. */
#define ENGINE_SIZE MIB
static uint64_t engine_fill(void) {
    const uint64_t address = engine_allocate(0, ENGINE_SIZE);
    fill_device(0, address, ENGINE_SIZE, 0x5A);
    return address;
}

static void engine_check_and_free(uint64_t address) {
    check_device(0, address, ENGINE_SIZE, 0x5A);
    engine_free(0, address);
}

/* The context is the engine's again, with its memory: whatever was prepared before is refused before it
   runs. */
TEST(what_was_prepared_before_a_reset_is_refused) {
    prepared lost, kept;
    RETAIN_DEVICE(0);
    {
        OPENED(host_flight, device, PLACE_DEVICE, PLACE_PINNED);
        OPENED(host_flight, elastic, PLACE_ELASTIC, PLACE_SYSTEM);
        prepare(&device, NUM(paths), lost);
        prepare(&elastic, PAGEABLE_PATHS, kept);
        reset_device(0);
        RETAIN_DEVICE(0);
        const uint64_t engine = engine_fill();
        for (size_t i = 0; i < NUM(paths); i++) {
            kvmem_transfer_options options = WITH(kv_transfer_options(&two_blocks), it.path = paths[i]);
            flight_refuse_with(&device, KVMEM_STATUS_INVALID_STATE, gone, options);
            REFUSE(KVMEM_STATUS_INVALID_STATE, gone, kvmem_transfer_create, device.destination.model.layout,
                   elastic.source.model.layout, &options);
        }
        expect_refused(lost, NUM(paths));
        expect_refused(kept, PAGEABLE_PATHS);
        flight_create(&elastic, it.path = 0);
        flight_run(&elastic); /* memory of no context */
        engine_check_and_free(engine);
        CU_ON(0, cuCtxSynchronize());
    }
    check_works();
}

/* With new memory of the host's, by a new kernel. */
TEST(elastic_memory_moves_on_by_every_path) {
    for (size_t i = 0; i < NUM(paths); i++) {
        RETAIN_DEVICE(0);
        OPENED(host_flight, flight, PLACE_ELASTIC, PLACE_PINNED);
        flight_create(&flight, it.path = 0);
        flight_run(&flight);
        flight_create(&flight, it.path = paths[i]);
        RUN(flight.transfer);
        side before = flight.destination;
        const kvmem_layout_config in_rows = before.model.config;
        reset_device(0);
        {
            RETAIN_DEVICE(0);
            side_open(&flight.destination, PLACE_PINNED, 0, &in_rows, NULL, 3);
            for (uint32_t way = 0; way < 2; way++) {
                flight_create(&flight, it.path = paths[i]);
                flight_refill(&flight, 10 + way);
                flight_run(&flight);
                flight_turn_round(&flight);
            }
            side_close(&before);
        }
    }
    check_works();
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

/* A kernel that read what is gone would take the device's context along; and other memory may lie there by
   then. */
TEST(adopted_memory_goes_with_an_engines_own_context) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    const kvmem_layout_config in_rows = kv_config(&kv_kinds[2]);
    prepared transfers;
    RETAIN_DEVICE(0);
    OPENED(own_context, own, &config);
    OPENED(side, host, PLACE_PINNED, 0, &in_rows, NULL, 1);
    const kvmem_layout *layouts[] = {own.layout, host.model.layout};
    for (size_t i = 0; i < 2 * NUM(paths); i++) {
        kvmem_transfer_options options = WITH(kv_transfer_options(&two_blocks), it.path = paths[i / 2]);
        EXPECT_OK(kvmem_transfer_create(layouts[i % 2], layouts[1 - i % 2], &options,
                                        &transfers[i / 2][i % 2], ERR));
    }
    own_context_destroy(&own);
    const uint64_t engine = engine_fill();
    expect_nothing_new(&own, host.model.layout);
    expect_refused(transfers, NUM(paths));
    side_check(&host);
    engine_check_and_free(engine);
    check_works();
}
