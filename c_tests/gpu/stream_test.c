// SPDX-License-Identifier: Apache-2.0
// Transfers on the caller's stream: after the work before them, before the work after them, in graphs, and
// refused where they can't be.
#include "gpu_flight.h"
#include "stance.h"

static const uint32_t paths[] = {KVMEM_PATH_CUDA_COPY, KVMEM_PATH_CUDA_BATCH, KVMEM_PATH_CUDA_2D,
                                 KVMEM_PATH_CUDA_KERNEL, KVMEM_PATH_CUDA_STAGED};

typedef struct work {
    flight flight;
    unsigned char *before, *after; /* page-locked: what goes into the source, what the destination is then */
    stream stream;
} work;

static void work_open_moving(work *work, route way, uint32_t path, const kv_move *move, uint64_t num_blocks) {
    const kvmem_layout_config source = WITH(side_config(&kv_kinds[1]), it.num_blocks = num_blocks);
    const kvmem_layout_config destination = WITH(side_config(&kv_kinds[2]), it.num_blocks = num_blocks);
    stream_open(&work->stream, 0);
    flight_open(&work->flight, .from = way.from, .to = way.to, .source = &source, .destination = &destination,
                .move = move);
    work->before = engine_allocate_host(0, work->flight.source.model.size);
    work->after = engine_allocate_host(0, work->flight.destination.model.size);
    flight_create(&work->flight, it.path = path);
}

static void work_open(work *work, place from, place to, uint32_t path) {
    work_open_moving(work, (route){from, to}, path, &scattered_move, 7);
}

static void work_close(work *work) {
    engine_free_host(0, work->before);
    engine_free_host(0, work->after);
    flight_close(&work->flight);
    stream_close(&work->stream);
}

/* Fills the source on the stream, moves, and reads the destination on the stream: nobody waits in between. */
static void run_in_order(work *work, uint32_t seed) {
    side *source = &work->flight.source, *destination = &work->flight.destination;
    kv_fill(work->before, source->model.size, seed);
    memcpy(source->model.expected, work->before, source->model.size);
    stream_copy(&work->stream, source->base, (uintptr_t)work->before, source->model.size);
    flight_submit_on(&work->flight, work->stream.handle);
    stream_copy(&work->stream, (uintptr_t)work->after, destination->base, destination->model.size);
    stream_await(&work->stream);
    kv_expect_moved(&destination->model, &source->model, work->flight.move);
    CHECK_BYTES(work->after, destination->model.expected, destination->model.size);
    flight_land(&work->flight);
}

/* The stream takes neither the transfer nor a wait for it. */
static void refuse_stream(const work *work, CUstream stream, kvmem_status status, const char *reason) {
    EXPECT_MESSAGE(status, reason, kvmem_transfer_submit_on_stream(work->flight.transfer, stream, ERR));
    EXPECT_MESSAGE(status, reason, kvmem_transfer_wait_on_stream(work->flight.transfer, 0, stream, ERR));
}

TEST(a_transfer_keeps_its_place_on_the_stream) {
    static const route ways[] = {
        {PLACE_PINNED, PLACE_DEVICE}, {PLACE_DEVICE, PLACE_PINNED}, {PLACE_DEVICE, PLACE_ADOPTED}};
    for (size_t way = 0; way < NUM(ways); way++) {
        for (size_t i = 0; i < NUM(paths); i++) {
            if (way == 2 && paths[i] == KVMEM_PATH_CUDA_STAGED) continue;
            OPENED(work, work, ways[way].from, ways[way].to, paths[i]);
            for (uint32_t seed = 0; seed < 3; seed++) run_in_order(&work, 10 * (uint32_t)i + seed);
        }
    }
}

static CUstream const default_streams[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};

/* The default streams are those of whichever context is current. */
TEST(the_default_streams_are_streams_too) {
    for (size_t i = 0; i < NUM(default_streams) * NUM(paths); i++) {
        OPENED(work, work, PLACE_PINNED, PLACE_DEVICE, paths[i / NUM(default_streams)]);
        flight_submit_on_primary(&work.flight, default_streams[i % NUM(default_streams)]);
        flight_land(&work.flight);
    }
}

TEST(a_stream_of_another_context_is_refused) {
    OPENED(work, work, PLACE_PINNED, PLACE_DEVICE, 0);
    CUcontext other = NULL;
    const CUstream stream = stream_in_new_context(0, &other);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "primary context of device 0",
                   kvmem_transfer_submit_on_stream(work.flight.transfer, stream, ERR));
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_transfer_poll(work.flight.transfer, ERR));
    CU(cuCtxDestroy_v2(other));
    side_check(&work.flight.destination);
    run_in_order(&work, 5);
}

/* The default streams are the current context's: without one there are none. */
TEST(a_default_stream_needs_the_primary_context) {
    const char *const reason = current_context() == NULL ? "make the primary context of the GPU current"
                                                         : "primary context of device 0";
    OPENED(work, work, PLACE_PINNED, PLACE_DEVICE, 0);
    run_in_order(&work, 3);
    for (size_t i = 0; i < NUM(default_streams); i++) {
        refuse_stream(&work, default_streams[i], KVMEM_STATUS_INVALID_ARGUMENT, reason);
        EXPECT_OK(kvmem_transfer_poll(work.flight.transfer, ERR));
    }
    side_check(&work.flight.destination);
    run_in_order(&work, 4);
}

TEST(a_transfer_of_no_gpu_takes_no_stream) {
    OPENED(stream, stream, 0);
    OPENED(flight, host, .from = PLACE_SYSTEM, .to = PLACE_SYSTEM);
    flight_create(&host, it.path = 0);
    EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "memcpy",
                   kvmem_transfer_submit_on_stream(host.transfer, stream.handle, ERR));
}

/* A graph of one transfer. */
static CUgraphExec capture(work *work) {
    stream_begin_capture(&work->stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    flight_submit_on(&work->flight, work->stream.handle);
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_transfer_poll(work->flight.transfer, ERR));
    return stream_end_capture(&work->stream);
}

static void launch_and_check(work *work, CUgraphExec graph, uint32_t seed) {
    flight_refill(&work->flight, seed);
    stream_launch(&work->stream, graph);
    flight_check_moved(&work->flight);
}

static void move_by_graph(uint32_t path, const kv_move *move, uint64_t num_blocks) {
    CLEANUP(work_close) work work;
    work_open_moving(&work, (route){PLACE_PINNED, PLACE_DEVICE}, path, move, num_blocks);
    CUgraphExec graph = capture(&work);
    side_check(&work.flight.destination);
    for (uint32_t seed = 0; seed < 3; seed++) launch_and_check(&work, graph, seed);
    run_in_order(&work, 77); /* beside the graph */
    launch_and_check(&work, graph, 78);
    stream_destroy_graph(&work.stream, graph);
}

/* A few blocks, and more than go with a launch of the kernel. */
TEST(a_graph_moves_what_is_there_when_it_runs) {
    kvmem_block_pair many[300];
    for (uint32_t i = 0; i < NUM(many); i++) many[i] = (kvmem_block_pair){i, NUM(many) - 1 - i};
    const kv_move move_of_many = {many, NUM(many), 0, 0, 3};
    for (size_t i = 0; i < NUM(paths); i++) {
        if (paths[i] != KVMEM_PATH_CUDA_STAGED) {
            move_by_graph(paths[i], &scattered_move, 7);
            move_by_graph(paths[i], &move_of_many, NUM(many));
        }
    }
}

static void create_and_destroy_regions(void) {
    const kvmem_device_options device = OPTIONS(kvmem_device_options, it.size = MIB);
    const kvmem_pinned_options pinned = OPTIONS(kvmem_pinned_options, it.size = MIB);
    OWN(kvmem_region, region, kvmem_region_create_device, &device);
    OWN(kvmem_region, host_region, kvmem_region_create_pinned, &pinned);
}

/* Its end is seen by a thread of the library's. */
static void move_with_a_queue(flight *flight) {
    OWN(kvmem_queue, queue, kvmem_queue_create);
    OWNED(kvmem_transfer) transfer = flight_create_another(flight, it.queue = queue);
    EXPECT_OK(kvmem_transfer_submit(transfer, ERR));
    CHECK_EQ(next_completion(queue).status, KVMEM_STATUS_OK);
}

/* The driver ends a capture in failure when memory is allocated or an event is queried meanwhile, on any
   thread. */
TEST(a_capture_is_not_disturbed) {
    static const CUstreamCaptureMode modes[] = {
        CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED};
    for (size_t i = 0; i < NUM(modes); i++) {
        OPENED(work, captured, PLACE_PINNED, PLACE_DEVICE, KVMEM_PATH_CUDA_KERNEL);
        OPENED(work, beside, PLACE_PINNED, PLACE_DEVICE, 0);
        stream_begin_capture(&captured.stream, modes[i]);
        create_and_destroy_regions();
        flight_submit_on(&captured.flight, captured.stream.handle);
        move_with_a_queue(&beside.flight);
        flight_submit_on(&beside.flight, beside.stream.handle);
        EXPECT_OK(kvmem_transfer_wait(beside.flight.transfer, PATIENCE, ERR));
        CUgraphExec graph = stream_end_capture(&captured.stream);
        launch_and_check(&captured, graph, 5);
        flight_check_moved(&beside.flight);
        stream_destroy_graph(&captured.stream, graph);
    }
}

TEST(a_staged_transfer_is_refused_in_a_graph) {
    OPENED(work, work, PLACE_DEVICE, PLACE_PINNED, KVMEM_PATH_CUDA_STAGED);
    stream_begin_capture(&work.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "request another path",
                   kvmem_transfer_submit_on_stream(work.flight.transfer, work.stream.handle, ERR));
    stream_drop_capture(&work.stream);
    run_in_order(&work, 3);
}

TEST(elastic_memory_is_refused_in_a_graph) {
    static const route ways[] = {{PLACE_ELASTIC, PLACE_PINNED}, {PLACE_PINNED, PLACE_ELASTIC}};
    for (size_t i = 0; i < NUM(ways); i++) {
        OPENED(work, work, ways[i].from, ways[i].to, 0);
        stream_begin_capture(&work.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "elastic",
                       kvmem_transfer_submit_on_stream(work.flight.transfer, work.stream.handle, ERR));
        stream_drop_capture(&work.stream);
        flight_submit_on(&work.flight, work.stream.handle);
        flight_land(&work.flight);
    }
}

/* A wait for a stream that is captured spoils the capture: nothing can be put there until it is ended. */
TEST(a_capture_that_was_invalidated_takes_nothing) {
    OPENED(work, work, PLACE_PINNED, PLACE_DEVICE, 0);
    run_in_order(&work, 3);
    stream_begin_capture(&work.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    enter_device(0);
    CHECK(driver_get()->cuCtxSynchronize() != CUDA_SUCCESS);
    CU(cuStreamIsCapturing(work.stream.handle, &status));
    leave_device(0);
    CHECK_EQ(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    refuse_stream(&work, work.stream.handle, KVMEM_STATUS_INVALID_STATE, "was invalidated");
    CUgraph graph = NULL;
    enter_device(0);
    CHECK_EQ(driver_get()->cuStreamEndCapture(work.stream.handle, &graph),
             CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    leave_device(0);
    CHECK(graph == NULL);
    side_check(&work.flight.destination);
    run_in_order(&work, 4);
}
