// SPDX-License-Identifier: Apache-2.0
// GPU transfers by layer: work on another stream waits for its layers and finds their bytes; progress by
// layers; invalid calls; thousands in flight.
#include "gpu_flight.h"
#include "rates_blob.h"
#include "caller_context.h"

#include <stdatomic.h>

#define LAYERS 3

static const uint32_t methods[] = {KVMEM_METHOD_CUDA_COPY, KVMEM_METHOD_CUDA_BATCH, KVMEM_METHOD_CUDA_2D,
                                 KVMEM_METHOD_CUDA_KERNEL, KVMEM_METHOD_CUDA_STAGED};
static const route routes[] = {{PLACE_PINNED, PLACE_DEVICE}, {PLACE_DEVICE, PLACE_PINNED}};

typedef struct work {
    flight flight;
    unsigned char *after; /* page-locked: the bytes that the reading stream read from the destination */
    stream transfer_stream, reader;
} work;

/* Layers of 2 MiB, so that a reader that does not wait reads too early. */
static kvmem_layout_config config_of(const kv_kind *kind) {
    return WITH(side_config(kind), it.page_size = 64, it.inner_dim = 1024);
}

static void open_streams(work *work) {
    stream_open(&work->transfer_stream, 0);
    stream_open(&work->reader, 0);
}

static void work_open(work *work, route route, uint32_t method, uint64_t flags) {
    const kvmem_layout_config source = config_of(&kv_kinds[1]);
    const kvmem_layout_config destination = config_of(&kv_kinds[2]);
    open_streams(work);
    flight_open(&work->flight, .from = route.from, .to = route.to, .source = &source,
                .destination = &destination);
    work->after = engine_allocate_host(0, work->flight.destination.model.size);
    flight_create(&work->flight, it.transfer.method = method, it.transfer.flags = flags);
}

static void work_close(work *work) {
    engine_free_host(0, work->after);
    flight_close(&work->flight);
    stream_close(&work->transfer_stream);
    stream_close(&work->reader);
}

static void submit(const work *work, bool on_transfer_stream) {
    if (on_transfer_stream) flight_submit_on(&work->flight, work->transfer_stream.handle);
    else flight_submit(&work->flight);
}

/* Makes the reading stream wait for layers; 0 for all. */
static void make_reader_wait(const work *work, uint64_t layers) {
    EXPECT_OK(kvmem_transfer_wait_on_stream(work->flight.transfer, layers, work->reader.handle, ERR));
}

/* Makes the reading stream copy a layer, which is one region of the destination, to host memory. */
static void read_layer(const work *work, uint64_t layer) {
    const side *read = &work->flight.destination;
    const size_t start = read->model.starts[layer];
    stream_copy(&work->reader, (uintptr_t)work->after + start, read->base + start,
                kv_region_size(&read->model.config));
}

static void read_all_layers(const work *work) {
    for (uint64_t layer = 0; layer < LAYERS; layer++) read_layer(work, layer);
}

static void check_read_bytes(work *work) {
    const kv_side *model = &work->flight.destination.model;
    flight_finish(&work->flight);
    for (uint64_t layer = 0; layer < LAYERS; layer++) {
        const size_t start = model->starts[layer];
        CHECK_BYTES(work->after + start, model->expected + start, kv_region_size(&model->config));
    }
    const uint64_t layers = transfer_info(work->flight.transfer).layers_moved;
    CHECK_EQ(layers, LAYERS);
}

static void check_layers(work *work) {
    stream_await(&work->reader);
    check_read_bytes(work);
}

TEST(a_stream_waits_for_each_layer) {
    for (size_t i = 0; i < NUM(routes) * NUM(methods) * 2; i++) {
        OPENED(work, work, routes[i / 2 % NUM(routes)], methods[i / 2 / NUM(routes)],
               KVMEM_TRANSFER_BY_LAYER);
        for (uint32_t seed = 0; seed < 3; seed++) {
            flight_refill(&work.flight, 10 * (uint32_t)i + seed);
            submit(&work, i % 2);
            for (uint64_t layer = 0; layer < LAYERS; layer++) {
                make_reader_wait(&work, layer + 1);
                read_layer(&work, layer);
            }
            check_layers(&work);
        }
    }
}

/* With and without KVMEM_TRANSFER_BY_LAYER. */
TEST(a_stream_waits_for_all_layers) {
    for (size_t i = 0; i < NUM(methods) * 4; i++) {
        OPENED(work, work, routes[0], methods[i / 4], i % 2 ? KVMEM_TRANSFER_BY_LAYER : 0);
        submit(&work, i / 2 % 2);
        make_reader_wait(&work, i % 2 ? 0 : 1); /* without the flag, waiting for one layer waits for all */
        read_all_layers(&work);
        check_layers(&work);
        make_reader_wait(&work, 0); /* the run is complete */
    }
}

/* The driver still runs the work of a destroyed stream. kvmem must not use the stream any more. */
TEST(streams_can_be_destroyed_while_a_transfer_is_in_flight) {
    for (size_t i = 0; i < NUM(methods) * 4; i++) {
        OPENED(work, work, routes[1 - i % 2], methods[i / 4], i / 2 % 2 ? KVMEM_TRANSFER_BY_LAYER : 0);
        for (uint32_t seed = 0; seed < 3; seed++) {
            CUevent read = NULL;
            flight_refill(&work.flight, 10 * (uint32_t)i + seed);
            submit(&work, true);
            CU_ON(0, cuEventCreate(&read, CU_EVENT_DISABLE_TIMING));
            retain_device(0);
            stream_close(&work.transfer_stream);
            make_reader_wait(&work, 0);
            read_all_layers(&work);
            CU_ON(0, cuEventRecord(read, work.reader.handle));
            stream_close(&work.reader);
            EXPECT_OK(kvmem_transfer_wait(work.flight.transfer, PATIENCE, ERR));
            CU_ON(0, cuEventSynchronize(read));
            CU_ON(0, cuEventDestroy_v2(read));
            check_read_bytes(&work);
            open_streams(&work);
            release_device(0);
        }
    }
}

TEST(the_host_waits_for_layers) {
    for (size_t i = 0; i < NUM(methods); i++) {
        OPENED(work, work, routes[1], methods[i], KVMEM_TRANSFER_BY_LAYER);
        submit(&work, false);
        uint64_t before = 0;
        for (uint64_t layer = 1; layer <= LAYERS; layer++) {
            EXPECT_OK(kvmem_transfer_wait_layers(work.flight.transfer, layer, PATIENCE, ERR));
            const uint64_t layers = transfer_info(work.flight.transfer).layers_moved;
            CHECK(layers >= layer && layers >= before && layers <= LAYERS);
            before = layers;
        }
        read_all_layers(&work);
        check_layers(&work);
    }
}

TEST(a_graph_moves_all_layers) {
    OPENED(work, work, routes[0], KVMEM_METHOD_CUDA_KERNEL, KVMEM_TRANSFER_BY_LAYER);
    stream_begin_capture(&work.transfer_stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    submit(&work, true);
    CUgraphExec graph = stream_end_capture(&work.transfer_stream);
    stream_launch(&work.transfer_stream, graph);
    stream_destroy_graph(&work.transfer_stream, graph);
    flight_check_moved(&work.flight);
}

typedef struct changing_rates {
    rates_blob choices[2];
    atomic_bool has_ended;
} changing_rates;

static void *change_rates(void *argument) {
    changing_rates *rates = *(changing_rates **)argument;
    for (size_t i = 0; !atomic_load(&rates->has_ended); i++) rates_set(0, &rates->choices[i % 2]);
    return NULL;
}

/* All layers take the method of the first, also if another one becomes the fastest in between: kernels, or
   staged copies. */
TEST(rates_may_change_while_a_transfer_by_layer_is_created) {
    kvmem_block_pair pairs[2048];
    for (uint32_t i = 0; i < NUM(pairs); i++) pairs[i] = (kvmem_block_pair){i * 5 % NUM(pairs), i};
    const kv_move move = {pairs, NUM(pairs), 0, 0, 16};
    const kvmem_layout_config config =
        WITH(side_config(&kv_kinds[1]), it.num_blocks = NUM(pairs), it.num_layers = 16);
    OPENED(flight, flight, .from = PLACE_DEVICE, .to = PLACE_PINNED, .source = &config, .move = &move);
    EXPECT_OK(kvmem_cuda_use_default_rates(0, ERR));
    changing_rates rates = {.choices = {rates_get(0), rates_get(0)}};
    rates_set_figure(&rates.choices[0], RATE_TO_HOST_KERNEL,
                     0.4 * rates_figure(&rates.choices[0], RATE_TO_HOST));
    changing_rates *shared = &rates;
    threads changer = {0};
    threads_start(&changer, 1, change_rates, &shared, sizeof(shared));
    uint32_t paths_seen = 0;
    for (int i = 0; i < 200 || paths_seen != 3; i++) { /* until the thread has had its turns */
        flight_create(&flight, it.transfer.method = 0, it.transfer.flags = KVMEM_TRANSFER_BY_LAYER,
                      it.transfer.compute = KVMEM_COMPUTE_IDLE);
        paths_seen |= flight_info(&flight).method == KVMEM_METHOD_CUDA_STAGED ? 1 : 2;
    }
    atomic_store(&rates.has_ended, true);
    threads_join(&changer);
    flight_run(&flight);
    EXPECT_OK(kvmem_cuda_use_default_rates(0, ERR));
}

TEST(invalid_waits_on_a_stream_fail) {
    OPENED(work, work, routes[0], 0, KVMEM_TRANSFER_BY_LAYER);
    kvmem_transfer *transfer = work.flight.transfer;
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_transfer_wait_on_stream(transfer, 1, work.reader.handle, ERR));
    submit(&work, false);
    EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_RANGE, "3 layers",
                   kvmem_transfer_wait_on_stream(transfer, LAYERS + 1, work.reader.handle, ERR));
    CUcontext other = NULL;
    const CUstream stream = stream_in_new_context(0, &other);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "primary context of device 0",
                   kvmem_transfer_wait_on_stream(transfer, 1, stream, ERR));
    CU(cuCtxDestroy_v2(other));
    stream_begin_capture(&work.reader, CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "graph",
                   kvmem_transfer_wait_on_stream(transfer, 1, work.reader.handle, ERR));
    stream_drop_capture(&work.reader);
    EXPECT_OK(kvmem_transfer_wait(transfer, PATIENCE, ERR));
    EXPECT_OK(kvmem_transfer_cancel(transfer, ERR)); /* no effect after the end */
    EXPECT_OK(kvmem_transfer_poll(transfer, ERR));
    flight_check_moved(&work.flight);
}

/* Some by layer, some cancelled, some with a stream that waits for them. */
TEST(thousands_in_flight_are_each_reported_once) {
    enum { MANY = 3000, BLOCKS = 500 };
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    const kvmem_layout_config wide = WITH(kv_config(&kv_kinds[0]), it.num_blocks = BLOCKS);
    OPENED(stream, reader, 0);
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE, .source = &config, .destination = &wide,
           .has_queue = true);
    CLEANUP(test_free) kvmem_transfer **transfers = test_allocate(MANY * sizeof(*transfers));
    CLEANUP(test_free) kvmem_status *ends = test_allocate(MANY * sizeof(*ends));
    kvmem_block_pair pairs[BLOCKS];
    for (uint32_t i = 0; i < BLOCKS; i++) pairs[i] = (kvmem_block_pair){i % 7, i};
    for (uint32_t i = 0; i < MANY; i++) {
        const kv_move one = {&pairs[i % BLOCKS], 1, 0, 0, LAYERS};
        flight.move = &one;
        transfers[i] = flight_create_another(&flight, it.transfer.flags = i % 2 ? KVMEM_TRANSFER_BY_LAYER : 0,
                                             it.run.user_data = i);
        ends[i] = KVMEM_STATUS_IN_PROGRESS;
    }
    for (size_t i = 0; i < MANY; i++) {
        EXPECT_OK(kvmem_transfer_submit(transfers[i], NULL, ERR));
        if (i % 3 == 0) EXPECT_OK(kvmem_transfer_cancel(transfers[i], ERR));
        else if (i % 5 == 0) EXPECT_OK(kvmem_transfer_wait_on_stream(transfers[i], 1, reader.handle, ERR));
    }
    for (size_t i = 0; i < MANY; i++) {
        const kvmem_completion completion = next_completion(flight.queue);
        const uint64_t which = completion.user_data;
        const bool is_moved = completion.status == KVMEM_STATUS_OK;
        CHECK(which < MANY && ends[which] == KVMEM_STATUS_IN_PROGRESS);
        CHECK(is_moved || (completion.status == KVMEM_STATUS_CANCELLED && which % 3 == 0));
        CHECK_EQ(completion.bytes, is_moved ? LAYERS * 2 * 48 : 0);
        ends[which] = completion.status;
    }
    for (uint32_t i = 0; i < MANY; i++) {
        const kv_move one = {&pairs[i % BLOCKS], 1, 0, 0, LAYERS};
        if (ends[i] == KVMEM_STATUS_OK)
            kv_expect_moved(&flight.destination.model, &flight.source.model, &one);
        CALL(kvmem_transfer_destroy(transfers[i]));
    }
    side_check(&flight.destination);
}
