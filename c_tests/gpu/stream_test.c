// SPDX-License-Identifier: Apache-2.0
// Transfers on the caller's stream: after the work before them, before the work after them, in graphs, and
// refused where they can't be.
#include "sides.h"
#include "stance.h"

static const uint32_t paths[] = {KVMEM_PATH_CUDA_COPY, KVMEM_PATH_CUDA_BATCH, KVMEM_PATH_CUDA_2D,
                                 KVMEM_PATH_CUDA_KERNEL, KVMEM_PATH_CUDA_STAGED};
static const kvmem_block_pair pairs[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}};
static const kv_move move = {pairs, NUM(pairs), 0, 0, 3};

typedef struct work {
    side source, destination;
    unsigned char *before, *after; /* page-locked: what goes into the source, what the destination is then */
    kv_move move;
    kvmem_transfer *transfer;
    CUstream stream;
} work;

static void open_stream(work *work) {
    CU_ON(0, cuStreamCreate(&work->stream, CU_STREAM_NON_BLOCKING));
}

static void prepare_move(work *work, place from, place to, uint32_t path, const kv_move *move,
                         uint64_t num_blocks) {
    kvmem_layout_config source = side_config(&kv_kinds[1]);
    kvmem_layout_config destination = side_config(&kv_kinds[2]);
    source.num_blocks = destination.num_blocks = num_blocks;
    *work = (struct work){.move = *move};
    retain_device(0);
    side_open(&work->source, from, 0, &source, NULL, 1);
    side_open(&work->destination, to, 0, &destination, NULL, 2);
    work->before = engine_allocate_host(0, work->source.model.size);
    work->after = engine_allocate_host(0, work->destination.model.size);
    open_stream(work);
    kvmem_transfer_options options = WITH(kv_transfer_options(move), it.path = path);
    EXPECT_OK(kvmem_transfer_create(work->source.model.layout, work->destination.model.layout, &options,
                                    &work->transfer, ERR));
}

static void work_open(work *work, place from, place to, uint32_t path) {
    prepare_move(work, from, to, path, &move, 7);
}

static void work_close(work *work) {
    CALL(kvmem_transfer_destroy(work->transfer));
    CU_ON(0, cuStreamDestroy_v2(work->stream));
    engine_free_host(0, work->before);
    engine_free_host(0, work->after);
    side_close(&work->source);
    side_close(&work->destination);
    release_device(0);
}

/* Fills the source on the stream, moves, and reads the destination on the stream: nobody waits in between. */
static void run_in_order(work *work, uint32_t seed) {
    kv_fill(work->before, work->source.model.size, seed);
    memcpy(work->source.model.expected, work->before, work->source.model.size);
    CU_ON(0,
          cuMemcpyAsync(work->source.base, (uintptr_t)work->before, work->source.model.size, work->stream));
    EXPECT_OK(kvmem_transfer_submit_on_stream(work->transfer, work->stream, ERR));
    enter_device(0);
    CU(cuMemcpyAsync((uintptr_t)work->after, work->destination.base, work->destination.model.size,
                     work->stream));
    CU(cuStreamSynchronize(work->stream));
    leave_device(0);
    kv_expect_moved(&work->destination.model, &work->source.model, &work->move);
    CHECK_BYTES(work->after, work->destination.model.expected, work->destination.model.size);
    EXPECT_OK(kvmem_transfer_wait(work->transfer, PATIENCE, ERR));
    side_check(&work->destination);
}

TEST(a_transfer_keeps_its_place_on_the_stream) {
    static const struct {
        place from, to;
    } ways[] = {{PLACE_PINNED, PLACE_DEVICE}, {PLACE_DEVICE, PLACE_PINNED}, {PLACE_DEVICE, PLACE_ADOPTED}};
    for (size_t way = 0; way < NUM(ways); way++) {
        for (size_t i = 0; i < NUM(paths); i++) {
            if (way == 2 && paths[i] == KVMEM_PATH_CUDA_STAGED) {
                continue;
            }
            OPENED(work, work, ways[way].from, ways[way].to, paths[i]);
            for (uint32_t seed = 0; seed < 3; seed++) {
                run_in_order(&work, 10 * (uint32_t)i + seed);
            }
        }
    }
}

/* The default streams are those of whichever context is current. */
TEST(the_default_streams_are_streams_too) {
    static CUstream const streams[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
    for (size_t i = 0; i < NUM(streams) * NUM(paths); i++) {
        OPENED(work, work, PLACE_PINNED, PLACE_DEVICE, paths[i / NUM(streams)]);
        const CUcontext stance = current_context();
        CUcontext primary = NULL;
        enter_device(0);
        primary = current_context();
        leave_device(0);
        CU(cuCtxPushCurrent_v2(primary));
        stance_take(primary);
        EXPECT_OK(kvmem_transfer_submit_on_stream(work.transfer, streams[i % NUM(streams)], ERR));
        EXPECT_OK(kvmem_transfer_wait(work.transfer, PATIENCE, ERR));
        CUcontext popped = NULL;
        CU(cuCtxPopCurrent_v2(&popped));
        stance_take(stance);
        side_check_moved(&work.destination, &work.source, &move);
    }
}

TEST(a_stream_of_another_context_is_refused) {
    OPENED(work, work, PLACE_PINNED, PLACE_DEVICE, 0);
    CUcontext other = NULL;
    CUcontext popped = NULL;
    CUstream stream = NULL;
    CU(cuCtxCreate_v2(&other, 0, 0));
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CU(cuCtxPopCurrent_v2(&popped));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "primary context of device 0",
                   kvmem_transfer_submit_on_stream(work.transfer, stream, ERR));
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_transfer_poll(work.transfer, ERR));
    CU(cuCtxDestroy_v2(other));
    side_check(&work.destination);
    run_in_order(&work, 5);
}

/* The default streams are the current context's: without one there are none. */
TEST(a_default_stream_needs_the_primary_context) {
    static CUstream const streams[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
    const char *const reason = current_context() == NULL ? "make the primary context of the GPU current"
                                                         : "primary context of device 0";
    OPENED(work, work, PLACE_PINNED, PLACE_DEVICE, 0);
    run_in_order(&work, 3);
    for (size_t i = 0; i < NUM(streams); i++) {
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, reason,
                       kvmem_transfer_submit_on_stream(work.transfer, streams[i], ERR));
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, reason,
                       kvmem_transfer_wait_on_stream(work.transfer, 0, streams[i], ERR));
        EXPECT_OK(kvmem_transfer_poll(work.transfer, ERR));
    }
    side_check(&work.destination);
    run_in_order(&work, 4);
}

TEST(a_transfer_of_no_gpu_takes_no_stream) {
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    work work = {0};
    OPENED(kv_side, host, &config, NULL, 1);
    RETAIN_DEVICE(0);
    open_stream(&work);
    static const kvmem_block_pair pair = {0, 1};
    const kv_move one = {&pair, 1, 0, 0, 3};
    const kvmem_transfer_options options = kv_transfer_options(&one);
    EXPECT_OK(kvmem_transfer_create(host.layout, host.layout, &options, &work.transfer, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "memcpy",
                   kvmem_transfer_submit_on_stream(work.transfer, work.stream, ERR));
    CALL(kvmem_transfer_destroy(work.transfer));
    CU_ON(0, cuStreamDestroy_v2(work.stream));
}

static void begin_capture(work *work, CUstreamCaptureMode mode) {
    CU_ON(0, cuStreamBeginCapture_v2(work->stream, mode));
}

static CUgraphExec end_capture(work *work) {
    CUgraph graph = NULL;
    CUgraphExec executable = NULL;
    enter_device(0);
    CU(cuStreamEndCapture(work->stream, &graph));
    CU(cuGraphInstantiateWithFlags(&executable, graph, 0));
    CU(cuGraphDestroy(graph));
    leave_device(0);
    return executable;
}

/* A graph of one transfer. */
static CUgraphExec capture(work *work) {
    begin_capture(work, CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT_OK(kvmem_transfer_submit_on_stream(work->transfer, work->stream, ERR));
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_transfer_poll(work->transfer, ERR));
    return end_capture(work);
}

static void launch_and_check(work *work, CUgraphExec graph, uint32_t seed) {
    side_refill(&work->source, seed);
    enter_device(0);
    CU(cuGraphLaunch(graph, work->stream));
    CU(cuStreamSynchronize(work->stream));
    leave_device(0);
    side_check_moved(&work->destination, &work->source, &work->move);
}

static void move_by_graph(uint32_t path, const kv_move *move, uint64_t num_blocks) {
    CLEANUP(work_close) work work;
    prepare_move(&work, PLACE_PINNED, PLACE_DEVICE, path, move, num_blocks);
    CUgraphExec graph = capture(&work);
    side_check(&work.destination);
    for (uint32_t seed = 0; seed < 3; seed++) {
        launch_and_check(&work, graph, seed);
    }
    run_in_order(&work, 77); /* beside the graph */
    launch_and_check(&work, graph, 78);
    CU_ON(0, cuGraphExecDestroy(graph));
}

/* A few blocks, and more than go with a launch of the kernel. */
TEST(a_graph_moves_what_is_there_when_it_runs) {
    kvmem_block_pair many[300];
    for (uint32_t i = 0; i < NUM(many); i++) {
        many[i] = (kvmem_block_pair){i, NUM(many) - 1 - i};
    }
    const kv_move move_of_many = {many, NUM(many), 0, 0, 3};
    for (size_t i = 0; i < NUM(paths); i++) {
        if (paths[i] != KVMEM_PATH_CUDA_STAGED) {
            move_by_graph(paths[i], &move, 7);
            move_by_graph(paths[i], &move_of_many, NUM(many));
        }
    }
}

static void create_and_destroy_regions(void) {
    kvmem_device_options device = OPTIONS(kvmem_device_options);
    kvmem_pinned_options pinned = OPTIONS(kvmem_pinned_options);
    device.size = pinned.size = 1 << 20;
    GET(kvmem_region *, region, kvmem_region_create_device, &device);
    CALL(kvmem_region_destroy(region));
    EXPECT_OK(kvmem_region_create_pinned(&pinned, &region, ERR));
    CALL(kvmem_region_destroy(region));
}

/* Its end is seen by a thread of the library's. */
static void move_with_a_queue(const work *work) {
    kvmem_completion completion = {0};
    kvmem_transfer_options options = kv_transfer_options(&move);
    OWN(kvmem_queue, queue, kvmem_queue_create);
    options.queue = queue;
    OWN(kvmem_transfer, transfer, kvmem_transfer_create, work->source.model.layout,
        work->destination.model.layout, &options);
    EXPECT_OK(kvmem_transfer_submit(transfer, ERR));
    GET(size_t, count, kvmem_queue_wait, queue, PATIENCE, &completion, 1);
    CHECK_EQ(completion.status, KVMEM_STATUS_OK);
}

/* The driver ends a capture in failure when memory is allocated or an event is queried meanwhile, on any
   thread. */
TEST(a_capture_is_not_disturbed) {
    static const CUstreamCaptureMode modes[] = {
        CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED};
    for (size_t i = 0; i < NUM(modes); i++) {
        work captured;
        work beside;
        work_open(&captured, PLACE_PINNED, PLACE_DEVICE, KVMEM_PATH_CUDA_KERNEL);
        work_open(&beside, PLACE_PINNED, PLACE_DEVICE, 0);
        begin_capture(&captured, modes[i]);
        create_and_destroy_regions();
        EXPECT_OK(kvmem_transfer_submit_on_stream(captured.transfer, captured.stream, ERR));
        move_with_a_queue(&beside);
        EXPECT_OK(kvmem_transfer_submit_on_stream(beside.transfer, beside.stream, ERR));
        EXPECT_OK(kvmem_transfer_wait(beside.transfer, PATIENCE, ERR));
        CUgraphExec graph = end_capture(&captured);
        launch_and_check(&captured, graph, 5);
        side_check_moved(&beside.destination, &beside.source, &move);
        enter_device(0);
        CU(cuGraphExecDestroy(graph));
        leave_device(0);
        work_close(&captured);
        work_close(&beside);
    }
}

TEST(a_staged_transfer_is_refused_in_a_graph) {
    OPENED(work, work, PLACE_DEVICE, PLACE_PINNED, KVMEM_PATH_CUDA_STAGED);
    CUgraph graph = NULL;
    begin_capture(&work, CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "request another path",
                   kvmem_transfer_submit_on_stream(work.transfer, work.stream, ERR));
    enter_device(0);
    CU(cuStreamEndCapture(work.stream, &graph));
    CU(cuGraphDestroy(graph));
    leave_device(0);
    run_in_order(&work, 3);
}

TEST(elastic_memory_is_refused_in_a_graph) {
    for (int to_elastic = 0; to_elastic < 2; to_elastic++) {
        const place from = to_elastic ? PLACE_PINNED : PLACE_ELASTIC;
        OPENED(work, work, from, to_elastic ? PLACE_ELASTIC : PLACE_PINNED, 0);
        begin_capture(&work, CU_STREAM_CAPTURE_MODE_RELAXED);
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "elastic",
                       kvmem_transfer_submit_on_stream(work.transfer, work.stream, ERR));
        CUgraph graph = NULL;
        enter_device(0);
        CU(cuStreamEndCapture(work.stream, &graph));
        CU(cuGraphDestroy(graph));
        leave_device(0);
        EXPECT_OK(kvmem_transfer_submit_on_stream(work.transfer, work.stream, ERR));
        EXPECT_OK(kvmem_transfer_wait(work.transfer, PATIENCE, ERR));
        side_check_moved(&work.destination, &work.source, &move);
    }
}

/* A wait for a stream that is captured spoils the capture: nothing can be put there until it is ended. */
TEST(a_capture_that_was_invalidated_takes_nothing) {
    OPENED(work, work, PLACE_PINNED, PLACE_DEVICE, 0);
    run_in_order(&work, 3);
    begin_capture(&work, CU_STREAM_CAPTURE_MODE_RELAXED);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    enter_device(0);
    CHECK(driver_get()->cuCtxSynchronize() != CUDA_SUCCESS);
    CU(cuStreamIsCapturing(work.stream, &status));
    leave_device(0);
    CHECK_EQ(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "was invalidated",
                   kvmem_transfer_submit_on_stream(work.transfer, work.stream, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "was invalidated",
                   kvmem_transfer_wait_on_stream(work.transfer, 0, work.stream, ERR));
    CUgraph graph = NULL;
    enter_device(0);
    CHECK_EQ(driver_get()->cuStreamEndCapture(work.stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    leave_device(0);
    CHECK(graph == NULL);
    side_check(&work.destination);
    run_in_order(&work, 4);
}
