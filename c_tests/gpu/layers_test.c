// SPDX-License-Identifier: Apache-2.0
// GPU transfers by layer: work on another stream begins when its layers are there and finds their bytes in
// place; what is told of layers; what is refused; thousands in flight.
#include "sides.h"
#include "stance.h"

#define LAYERS 3

static const uint32_t paths[] = {KVMEM_PATH_CUDA_COPY, KVMEM_PATH_CUDA_BATCH, KVMEM_PATH_CUDA_2D,
                                 KVMEM_PATH_CUDA_KERNEL, KVMEM_PATH_CUDA_STAGED};
static const kvmem_block_pair pairs[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}};
static const kv_move move = {pairs, NUM(pairs), 0, 0, LAYERS};

typedef struct work {
    side source, destination;
    unsigned char *after; /* page-locked: what the reading stream found at the destination */
    kvmem_transfer *transfer;
    CUstream carrier, reader;
} work;

/* Layers of 2 MiB, so that a reader that did not wait would come too early. */
static kvmem_layout_config config_of(const kv_kind *kind) {
    return WITH(side_config(kind), it.page_size = 64, it.inner_dim = 1024);
}

static void open_streams(work *work) {
    enter_device(0);
    CU(cuStreamCreate(&work->carrier, CU_STREAM_NON_BLOCKING));
    CU(cuStreamCreate(&work->reader, CU_STREAM_NON_BLOCKING));
    leave_device(0);
}

static void close_streams(work *work) {
    enter_device(0);
    CU(cuStreamDestroy_v2(work->carrier));
    CU(cuStreamDestroy_v2(work->reader));
    leave_device(0);
}

static void work_open(work *work, place from, place to, uint32_t path, uint64_t flags) {
    const kvmem_layout_config source = config_of(&kv_kinds[1]);
    const kvmem_layout_config destination = config_of(&kv_kinds[2]);
    *work = (struct work){0};
    retain_device(0);
    side_open(&work->source, from, 0, &source, NULL, 1);
    side_open(&work->destination, to, 0, &destination, NULL, 2);
    work->after = engine_allocate_host(0, work->destination.model.size);
    open_streams(work);
    kvmem_transfer_options options = WITH(kv_transfer_options(&move), it.path = path, it.flags = flags);
    EXPECT_OK(kvmem_transfer_create(work->source.model.layout, work->destination.model.layout, &options,
                                    &work->transfer, ERR));
}

static void work_close(work *work) {
    CALL(kvmem_transfer_destroy(work->transfer));
    close_streams(work);
    engine_free_host(0, work->after);
    side_close(&work->source);
    side_close(&work->destination);
    release_device(0);
}

static void submit(work *work, bool on_carrier) {
    if (on_carrier) {
        EXPECT_OK(kvmem_transfer_submit_on_stream(work->transfer, work->carrier, ERR));
    } else {
        EXPECT_OK(kvmem_transfer_submit(work->transfer, ERR));
    }
}

/* Has the reading stream copy a layer, which is a region of its own there, to host memory. */
static void read_layer(work *work, uint64_t layer) {
    const kv_side *model = &work->destination.model;
    const size_t start = model->starts[layer];
    enter_device(0);
    CU(cuMemcpyAsync((uintptr_t)work->after + start, work->destination.base + start,
                     kv_region_size(&model->config), work->reader));
    leave_device(0);
}

static void check_what_was_read(work *work) {
    const kv_side *model = &work->destination.model;
    kv_expect_moved(&work->destination.model, &work->source.model, &move);
    for (uint64_t layer = 0; layer < LAYERS; layer++) {
        const size_t start = model->starts[layer];
        CHECK_BYTES(work->after + start, model->expected + start, kv_region_size(&model->config));
    }
    EXPECT_OK(kvmem_transfer_wait(work->transfer, PATIENCE, ERR));
    GET(uint64_t, layers, kvmem_transfer_get_layers, work->transfer);
    CHECK_EQ(layers, LAYERS);
    side_check(&work->destination);
}

static void check_layers(work *work) {
    CU_ON(0, cuStreamSynchronize(work->reader));
    check_what_was_read(work);
}

TEST(each_layer_is_there_when_its_reader_begins) {
    static const struct {
        place from, to;
    } ways[] = {{PLACE_PINNED, PLACE_DEVICE}, {PLACE_DEVICE, PLACE_PINNED}};
    for (size_t i = 0; i < NUM(ways) * NUM(paths) * 2; i++) {
        const bool on_carrier = i % 2;
        const size_t way = i / 2 % NUM(ways);
        OPENED(work, work, ways[way].from, ways[way].to, paths[i / 2 / NUM(ways)], KVMEM_TRANSFER_BY_LAYER);
        for (uint32_t seed = 0; seed < 3; seed++) {
            side_refill(&work.source, 10 * (uint32_t)i + seed);
            submit(&work, on_carrier);
            for (uint64_t layer = 0; layer < LAYERS; layer++) {
                EXPECT_OK(kvmem_transfer_wait_on_stream(work.transfer, layer + 1, work.reader, ERR));
                stance_check(__FILE__, __LINE__, "kvmem_transfer_wait_on_stream");
                read_layer(&work, layer);
            }
            check_layers(&work);
        }
    }
}

/* With the flag and without, a stream waits for all of a run. */
TEST(the_whole_run_is_there_when_its_reader_begins) {
    for (size_t i = 0; i < NUM(paths) * 4; i++) {
        OPENED(work, work, PLACE_PINNED, PLACE_DEVICE, paths[i / 4], i % 2 ? KVMEM_TRANSFER_BY_LAYER : 0);
        submit(&work, i / 2 % 2);
        /* Without the flag one layer is the whole run. */
        EXPECT_OK(kvmem_transfer_wait_on_stream(work.transfer, i % 2 ? 0 : 1, work.reader, ERR));
        for (uint64_t layer = 0; layer < LAYERS; layer++) {
            read_layer(&work, layer);
        }
        check_layers(&work);
        EXPECT_OK(kvmem_transfer_wait_on_stream(work.transfer, 0, work.reader, ERR)); /* of what is over */
    }
}

/* The driver does what is left on a stream that was destroyed; the library does not look at it any more. */
TEST(its_streams_may_go_while_it_is_in_flight) {
    for (size_t i = 0; i < NUM(paths) * 4; i++) {
        const bool to_device = i % 2;
        OPENED(work, work, to_device ? PLACE_PINNED : PLACE_DEVICE, to_device ? PLACE_DEVICE : PLACE_PINNED,
               paths[i / 4], i / 2 % 2 ? KVMEM_TRANSFER_BY_LAYER : 0);
        for (uint32_t seed = 0; seed < 3; seed++) {
            CUevent read = NULL;
            side_refill(&work.source, 10 * (uint32_t)i + seed);
            EXPECT_OK(kvmem_transfer_submit_on_stream(work.transfer, work.carrier, ERR));
            enter_device(0);
            CU(cuStreamDestroy_v2(work.carrier));
            CU(cuEventCreate(&read, CU_EVENT_DISABLE_TIMING));
            leave_device(0);
            EXPECT_OK(kvmem_transfer_wait_on_stream(work.transfer, 0, work.reader, ERR));
            for (uint64_t layer = 0; layer < LAYERS; layer++) {
                read_layer(&work, layer);
            }
            enter_device(0);
            CU(cuEventRecord(read, work.reader));
            CU(cuStreamDestroy_v2(work.reader));
            leave_device(0);
            EXPECT_OK(kvmem_transfer_wait(work.transfer, PATIENCE, ERR));
            enter_device(0);
            CU(cuEventSynchronize(read));
            CU(cuEventDestroy_v2(read));
            leave_device(0);
            check_what_was_read(&work);
            open_streams(&work);
        }
    }
}

TEST(the_host_waits_for_layers_too) {
    for (size_t i = 0; i < NUM(paths); i++) {
        OPENED(work, work, PLACE_DEVICE, PLACE_PINNED, paths[i], KVMEM_TRANSFER_BY_LAYER);
        submit(&work, false);
        uint64_t before = 0;
        for (uint64_t layer = 1; layer <= LAYERS; layer++) {
            EXPECT_OK(kvmem_transfer_wait_layers(work.transfer, layer, PATIENCE, ERR));
            GET(uint64_t, layers, kvmem_transfer_get_layers, work.transfer);
            CHECK(layers >= layer && layers >= before && layers <= LAYERS);
            before = layers;
        }
        for (uint64_t layer = 0; layer < LAYERS; layer++) {
            read_layer(&work, layer);
        }
        check_layers(&work);
    }
}

TEST(a_graph_moves_all_layers) {
    OPENED(work, work, PLACE_PINNED, PLACE_DEVICE, KVMEM_PATH_CUDA_KERNEL, KVMEM_TRANSFER_BY_LAYER);
    CUgraph graph = NULL;
    CUgraphExec executable = NULL;
    CU_ON(0, cuStreamBeginCapture_v2(work.carrier, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_OK(kvmem_transfer_submit_on_stream(work.transfer, work.carrier, ERR));
    enter_device(0);
    CU(cuStreamEndCapture(work.carrier, &graph));
    CU(cuGraphInstantiateWithFlags(&executable, graph, 0));
    CU(cuGraphDestroy(graph));
    CU(cuGraphLaunch(executable, work.carrier));
    CU(cuStreamSynchronize(work.carrier));
    CU(cuGraphExecDestroy(executable));
    leave_device(0);
    side_check_moved(&work.destination, &work.source, &move);
}

TEST(what_can_not_wait_is_refused) {
    OPENED(work, work, PLACE_PINNED, PLACE_DEVICE, 0, KVMEM_TRANSFER_BY_LAYER);
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_transfer_wait_on_stream(work.transfer, 1, work.reader, ERR));
    submit(&work, false);
    EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_RANGE, "3 layers",
                   kvmem_transfer_wait_on_stream(work.transfer, LAYERS + 1, work.reader, ERR));
    CUcontext other = NULL;
    CUcontext popped = NULL;
    CUstream stream = NULL;
    CU(cuCtxCreate_v2(&other, 0, 0));
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CU(cuCtxPopCurrent_v2(&popped));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "primary context of device 0",
                   kvmem_transfer_wait_on_stream(work.transfer, 1, stream, ERR));
    CU(cuCtxDestroy_v2(other));
    CUgraph graph = NULL;
    CU_ON(0, cuStreamBeginCapture_v2(work.reader, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "graph",
                   kvmem_transfer_wait_on_stream(work.transfer, 1, work.reader, ERR));
    enter_device(0);
    CU(cuStreamEndCapture(work.reader, &graph));
    CU(cuGraphDestroy(graph));
    leave_device(0);
    EXPECT_OK(kvmem_transfer_wait(work.transfer, PATIENCE, ERR));
    EXPECT_OK(kvmem_transfer_cancel(work.transfer, ERR)); /* after the end it does nothing */
    EXPECT_OK(kvmem_transfer_poll(work.transfer, ERR));
    side_check_moved(&work.destination, &work.source, &move);
}

/* Some by layer, some taken back, some waited for by a stream: each is reported once, as what it came to. */
TEST(thousands_in_flight_are_each_reported_once) {
    enum { MANY = 3000, BLOCKS = 500 };
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    kvmem_layout_config wide = config;
    wide.num_blocks = BLOCKS;
    work work = {0};
    RETAIN_DEVICE(0);
    open_streams(&work);
    side_open(&work.source, PLACE_PINNED, 0, &config, NULL, 1);
    side_open(&work.destination, PLACE_DEVICE, 0, &wide, NULL, 2);
    GET(kvmem_queue *, queue, kvmem_queue_create);
    kvmem_transfer **transfers = test_allocate(MANY * sizeof(*transfers));
    kvmem_status *ends = test_allocate(MANY * sizeof(*ends));
    for (uint32_t i = 0; i < MANY; i++) {
        const kvmem_block_pair pair = {i % BLOCKS % 7, i % BLOCKS};
        const kv_move one = {&pair, 1, 0, 0, LAYERS};
        kvmem_transfer_options options = WITH(kv_transfer_options(&one),
                                              it.flags = i % 2 ? KVMEM_TRANSFER_BY_LAYER : 0,
                                              it.queue = queue, it.user_data = i);
        EXPECT_OK(kvmem_transfer_create(work.source.model.layout, work.destination.model.layout, &options,
                                        &transfers[i], ERR));
        ends[i] = KVMEM_STATUS_IN_PROGRESS;
    }
    for (size_t i = 0; i < MANY; i++) {
        EXPECT_OK(kvmem_transfer_submit(transfers[i], ERR));
        if (i % 3 == 0) {
            EXPECT_OK(kvmem_transfer_cancel(transfers[i], ERR));
        } else if (i % 5 == 0) {
            EXPECT_OK(kvmem_transfer_wait_on_stream(transfers[i], 1, work.reader, ERR));
        }
    }
    for (size_t seen = 0; seen < MANY;) {
        kvmem_completion completions[64];
        GET(size_t, count, kvmem_queue_wait, queue, PATIENCE, completions, NUM(completions));
        for (size_t i = 0; i < count; i++, seen++) {
            const uint64_t which = completions[i].user_data;
            CHECK(which < MANY && ends[which] == KVMEM_STATUS_IN_PROGRESS);
            ends[which] = completions[i].status;
            const bool may_be_cancelled = which % 3 == 0;
            CHECK(ends[which] == KVMEM_STATUS_OK ||
                  (ends[which] == KVMEM_STATUS_CANCELLED && may_be_cancelled));
            CHECK_EQ(completions[i].bytes, ends[which] == KVMEM_STATUS_OK ? LAYERS * 2 * 48 : 0);
        }
    }
    for (uint32_t i = 0; i < MANY; i++) {
        const kvmem_block_pair pair = {i % BLOCKS % 7, i % BLOCKS};
        const kv_move one = {&pair, 1, 0, 0, LAYERS};
        if (ends[i] == KVMEM_STATUS_OK) {
            kv_expect_moved(&work.destination.model, &work.source.model, &one);
        }
        CALL(kvmem_transfer_destroy(transfers[i]));
    }
    side_check(&work.destination);
    free(transfers);
    free(ends);
    CALL(kvmem_queue_destroy(queue));
    close_streams(&work);
    side_close(&work.source);
    side_close(&work.destination);
}
