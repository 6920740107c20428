// SPDX-License-Identifier: Apache-2.0
// An engine resets the device that kvmem uses, or destroys its own context. Memory of the context is lost,
// the process continues, and new memory can be allocated.
#include "filled.h"
#include "gpu_flight.h"
#include "own_context.h"
#include "caller_context.h"

CONTEXTS_END

/* Checks that a new transfer on the device works. */
static void check_works(void) {
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE);
    flight_create(&flight, it.transfer.method = 0);
    flight_run(&flight);
}

TEST(lost_regions_can_be_destroyed) {
    kvmem_region *region = region_create_on_gpu(MIB);
    kvmem_pinned_options options = OPTIONS(kvmem_pinned_options, it.size = MIB);
    GET(kvmem_region *, pinned, kvmem_region_create_pinned, &options);
    reset_device(0);
    CHECK_EQ(region_info(region).size, MIB);
    REFUSE(KVMEM_STATUS_INVALID_STATE, context_destroyed, kvmem_share_create_region, region, NULL);
    CALL(kvmem_region_destroy(region));
    CALL(kvmem_region_destroy(pinned));
    check_works();
}

/* New memory of the engine may have the addresses of lost memory. */
TEST(destroying_lost_regions_does_not_free_memory_of_the_engine) {
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
        engine_free(0, engine[i]); /* fails if kvmem has freed it */
    }
    check_works();
}

/* Elastic memory does not belong to a context. */
TEST(elastic_memory_can_be_resized_after_a_reset) {
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    RETAIN_DEVICE(0);
    OPENED(side, elastic, PLACE_ELASTIC_PARTLY, 0, &config, NULL, 1);
    reset_device(0);
    EXPECT_OK(kvmem_layout_resize(elastic.model.layout, 2 * config.num_blocks, ERR));
    EXPECT_OK(kvmem_layout_resize(elastic.model.layout, config.num_blocks, ERR));
    check_works();
}

static const kv_move two_blocks = KV_MOVE(3, {6, 0}, {0, 5});
static const uint32_t methods[] = {0, KVMEM_METHOD_CUDA_COPY, KVMEM_METHOD_CUDA_2D, KVMEM_METHOD_CUDA_KERNEL,
                                 KVMEM_METHOD_CUDA_STAGED};
/* The number of the first methods that support pageable memory. */
#define PAGEABLE_PATHS 2

/* A transfer from memory of a GPU to the host, where blocks are in rows. */
typedef flight host_flight;
#define host_flight_close flight_close
static void host_flight_open(flight *flight, place from, place to) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    const kvmem_layout_config in_rows = kv_config(&kv_kinds[2]);
    flight_open(flight, .from = from, .to = to, .source = &config, .destination = &in_rows,
                .move = &two_blocks);
}

/* Transfers to and from the host by the first methods, which are created but not run. */
typedef kvmem_transfer *prepared[NUM(methods)][2];
static void prepare(flight *flight, size_t num_paths, prepared transfers) {
    for (size_t i = 0; i < 2 * num_paths; i++) {
        transfers[i / 2][i % 2] = flight_create_another(flight, it.transfer.method = methods[i / 2]);
        flight_reverse(flight);
    }
}

/* Checks that submitting fails, and that the transfers are still in the state before the first submit. */
static void expect_refused(prepared transfers, size_t num_paths) {
    OPENED(stream, stream, 0);
    for (size_t i = 0; i < 2 * num_paths; i++) {
        OWNED(kvmem_transfer) transfer = transfers[i / 2][i % 2];
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, context_destroyed,
                       kvmem_transfer_submit(transfer, NULL, ERR));
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, context_destroyed,
                       kvmem_transfer_submit_on_stream(transfer, NULL, stream.handle, ERR));
        EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_transfer_poll(transfer, ERR));
    }
}

/* Memory of the engine, which may have the address of lost memory. */
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

/* After the reset the context is created again and contains memory of the engine, which old transfers must
   not access. */
TEST(transfers_created_before_a_reset_are_rejected) {
    prepared of_device, of_elastic;
    RETAIN_DEVICE(0);
    {
        OPENED(host_flight, device, PLACE_DEVICE, PLACE_PINNED);
        OPENED(host_flight, elastic, PLACE_ELASTIC, PLACE_SYSTEM);
        prepare(&device, NUM(methods), of_device);
        prepare(&elastic, PAGEABLE_PATHS, of_elastic);
        reset_device(0);
        RETAIN_DEVICE(0);
        const uint64_t engine = engine_fill();
        for (size_t i = 0; i < NUM(methods); i++) {
            kv_job options = WITH(kv_job_of(&two_blocks), it.transfer.method = methods[i]);
            flight_refuse_with(&device, KVMEM_STATUS_INVALID_STATE, context_destroyed, options);
            REFUSE(KVMEM_STATUS_INVALID_STATE, context_destroyed, kv_prepare,
                   device.destination.model.layout, elastic.source.model.layout, &options);
        }
        expect_refused(of_device, NUM(methods));
        expect_refused(of_elastic, PAGEABLE_PATHS);
        flight_create(&elastic, it.transfer.method = 0);
        flight_run(&elastic); /* memory without a context */
        engine_check_and_free(engine);
        CU_ON(0, cuCtxSynchronize());
    }
    check_works();
}

/* With new host memory, and the kernels loaded again. */
TEST(elastic_memory_can_be_moved_on_every_path_after_a_reset) {
    for (size_t i = 0; i < NUM(methods); i++) {
        RETAIN_DEVICE(0);
        OPENED(host_flight, flight, PLACE_ELASTIC, PLACE_PINNED);
        flight_create(&flight, it.transfer.method = 0);
        flight_run(&flight);
        flight_create(&flight, it.transfer.method = methods[i]);
        RUN(flight.transfer);
        side before = flight.destination;
        const kvmem_layout_config in_rows = before.model.config;
        reset_device(0);
        {
            RETAIN_DEVICE(0);
            side_open(&flight.destination, PLACE_PINNED, 0, &in_rows, NULL, 3);
            for (uint32_t direction = 0; direction < 2; direction++) {
                flight_create(&flight, it.transfer.method = methods[i]);
                flight_refill(&flight, 10 + direction);
                flight_run(&flight);
                flight_reverse(&flight);
            }
            side_close(&before);
        }
    }
    check_works();
}

static void expect_new_calls_fail(const own_context *own, const kvmem_layout *host) {
    static const uint32_t blocks[] = {0};
    uint32_t checksum = 0;
    const kv_job options = kv_job_of(&two_blocks);
    REFUSE(KVMEM_STATUS_INVALID_STATE, context_destroyed, kv_prepare, own->layout, host, &options);
    REFUSE(KVMEM_STATUS_INVALID_STATE, context_destroyed, kv_prepare, host, own->layout, &options);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, context_destroyed,
                   kvmem_layout_checksum(own->layout, blocks, NUM(blocks), KVMEM_TIMEOUT_FOREVER, &checksum, ERR));
    REFUSE(KVMEM_STATUS_INVALID_STATE, context_destroyed, kvmem_share_create_region, own->regions[0], NULL);
    CHECK_EQ(region_info(own->regions[0]).address, own->address);
}

/* A kernel that accesses lost memory would destroy the device's primary context, or access other memory at
   that address. */
TEST(adopted_memory_is_lost_with_the_context_of_the_engine) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    const kvmem_layout_config in_rows = kv_config(&kv_kinds[2]);
    prepared transfers;
    RETAIN_DEVICE(0);
    OPENED(own_context, own, &config);
    OPENED(side, host, PLACE_PINNED, 0, &in_rows, NULL, 1);
    const kvmem_layout *layouts[] = {own.layout, host.model.layout};
    for (size_t i = 0; i < 2 * NUM(methods); i++) {
        kv_job options = WITH(kv_job_of(&two_blocks), it.transfer.method = methods[i / 2]);
        EXPECT_OK(kv_prepare(layouts[i % 2], layouts[1 - i % 2], &options,
                                        &transfers[i / 2][i % 2], ERR));
    }
    own_context_destroy(&own);
    const uint64_t engine = engine_fill();
    expect_new_calls_fail(&own, host.model.layout);
    expect_refused(transfers, NUM(methods));
    side_check(&host);
    engine_check_and_free(engine);
    check_works();
}
