// SPDX-License-Identifier: Apache-2.0
// Transfers on the caller's stream: in order with other work, in graphs, and invalid streams.
#include "gpu_flight.h"
#include "rates_blob.h"
#include "caller_context.h"

static const uint32_t paths[] = {KVMEM_METHOD_CUDA_COPY, KVMEM_METHOD_CUDA_BATCH, KVMEM_METHOD_CUDA_2D,
                                 KVMEM_METHOD_CUDA_KERNEL, KVMEM_METHOD_CUDA_STAGED};

typedef struct work {
    flight flight;
    /* page-locked: bytes for the source, and bytes read from the destination */
    unsigned char *before, *after;
    stream stream;
} work;

static void work_open_as(work *work, const flight_plan *plan, uint32_t path, uint64_t flags,
                         uint32_t compute) {
    stream_open(&work->stream, 0);
    flight_open_as(&work->flight, plan);
    work->before = engine_allocate_host(0, work->flight.source.model.size);
    work->after = engine_allocate_host(0, work->flight.destination.model.size);
    flight_create(&work->flight, it.transfer.method = path, it.transfer.flags = flags,
                  it.transfer.compute = compute);
}

static void work_open_moving(work *work, route route, uint32_t path, const kv_move *move,
                             uint64_t num_blocks) {
    const kvmem_layout_config source = WITH(side_config(&kv_kinds[1]), it.num_blocks = num_blocks);
    const kvmem_layout_config destination = WITH(side_config(&kv_kinds[2]), it.num_blocks = num_blocks);
    const flight_plan plan = {
        .from = route.from, .to = route.to, .source = &source, .destination = &destination, .move = move};
    work_open_as(work, &plan, path, 0, KVMEM_COMPUTE_MAY_RUN);
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

/* Fills the source, runs the transfer, and reads the destination on the stream, without waits in between. */
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
    flight_finish(&work->flight);
}

/* Checks that submitting on the stream and making it wait fail. */
static void refuse_stream(const work *work, CUstream stream, kvmem_status status, const char *reason) {
    EXPECT_MESSAGE(status, reason, kvmem_transfer_submit_on_stream(work->flight.transfer, NULL, stream, ERR));
    EXPECT_MESSAGE(status, reason, kvmem_transfer_wait_on_stream(work->flight.transfer, 0, stream, ERR));
}

TEST(transfers_run_in_order_with_other_work_on_the_stream) {
    static const route routes[] = {
        {PLACE_PINNED, PLACE_DEVICE}, {PLACE_DEVICE, PLACE_PINNED}, {PLACE_DEVICE, PLACE_ADOPTED}};
    for (size_t route = 0; route < NUM(routes); route++) {
        for (size_t i = 0; i < NUM(paths); i++) {
            if (route == 2 && paths[i] == KVMEM_METHOD_CUDA_STAGED) continue;
            OPENED(work, work, routes[route].from, routes[route].to, paths[i]);
            for (uint32_t seed = 0; seed < 3; seed++) run_in_order(&work, 10 * (uint32_t)i + seed);
        }
    }
}

static CUstream const default_streams[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};

/* The default streams belong to the current context. */
TEST(transfers_on_the_default_streams) {
    for (size_t i = 0; i < NUM(default_streams) * NUM(paths); i++) {
        OPENED(work, work, PLACE_PINNED, PLACE_DEVICE, paths[i / NUM(default_streams)]);
        flight_submit_on_primary(&work.flight, default_streams[i % NUM(default_streams)]);
        flight_finish(&work.flight);
    }
}

TEST(a_stream_of_another_context_is_rejected) {
    OPENED(work, work, PLACE_PINNED, PLACE_DEVICE, 0);
    CUcontext other = NULL;
    const CUstream stream = stream_in_new_context(0, &other);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "primary context of device 0",
                   kvmem_transfer_submit_on_stream(work.flight.transfer, NULL, stream, ERR));
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_transfer_poll(work.flight.transfer, ERR));
    CU(cuCtxDestroy_v2(other));
    side_check(&work.flight.destination);
    run_in_order(&work, 5);
}

/* Without a current context there are no default streams. */
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

TEST(transfers_between_host_memory_need_no_stream_and_reject_it) {
    OPENED(stream, stream, 0);
    OPENED(flight, host, .from = PLACE_SYSTEM, .to = PLACE_SYSTEM);
    flight_create(&host, it.transfer.method = 0);
    EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "memcpy",
                   kvmem_transfer_submit_on_stream(host.transfer, NULL, stream.handle, ERR));
}

/* Captures the transfer in a graph. */
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

static void run_by_graph(work *work) {
    CUgraphExec graph = capture(work);
    side_check(&work->flight.destination);
    for (uint32_t seed = 0; seed < 3; seed++) launch_and_check(work, graph, seed);
    run_in_order(work, 77); /* without the graph */
    launch_and_check(work, graph, 78);
    stream_destroy_graph(&work->stream, graph);
}

static void move_by_graph(uint32_t path, const kv_move *move, uint64_t num_blocks) {
    CLEANUP(work_close) work work;
    work_open_moving(&work, (route){PLACE_PINNED, PLACE_DEVICE}, path, move, num_blocks);
    run_by_graph(&work);
}

/* A few blocks, and more blocks than fit in the parameter of the kernel. */
TEST(each_launch_of_a_graph_moves_the_current_bytes) {
    kvmem_block_pair many[300];
    for (uint32_t i = 0; i < NUM(many); i++) many[i] = (kvmem_block_pair){i, NUM(many) - 1 - i};
    const kv_move move_of_many = {many, NUM(many), 0, 0, 3};
    for (size_t i = 0; i < NUM(paths); i++) {
        if (paths[i] != KVMEM_METHOD_CUDA_STAGED) {
            move_by_graph(paths[i], &scattered_move, 7);
            move_by_graph(paths[i], &move_of_many, NUM(many));
        }
    }
}

static void set_kernel_to_host(double of_link) {
    EXPECT_OK(kvmem_cuda_use_default_rates(0, ERR));
    rates_blob rates = rates_get(0);
    rates_set_figure(&rates, RATE_TO_HOST_KERNEL, of_link * rates_figure(&rates, RATE_TO_HOST));
    rates_set(0, &rates);
}

/* Rates with which staged copies of pieces that are scattered on the GPU only are the fastest path, and
   kernels the second. */
static void prefer_staging(void) { set_kernel_to_host(0.4); }

/* Rates with which a batch of long pieces is the fastest path, and a kernel is faster than one copy after the
   other. */
static void prefer_batches(void) { set_kernel_to_host(0.8); }

/* Whole, and by layer. The caller names no path. */
TEST(a_graph_takes_another_path_if_the_fastest_one_cannot_be_captured) {
    static const uint64_t flags[] = {0, KVMEM_TRANSFER_BY_LAYER};
    kvmem_block_pair pairs[2048];
    for (uint32_t i = 0; i < NUM(pairs); i++) pairs[i] = (kvmem_block_pair){i * 5 % NUM(pairs), i};
    const kv_move move = {pairs, NUM(pairs), 0, 0, 3};
    const kvmem_layout_config config = WITH(side_config(&kv_kinds[1]), it.num_blocks = NUM(pairs));
    const flight_plan plan = {.from = PLACE_DEVICE, .to = PLACE_PINNED, .source = &config, .move = &move};
    for (size_t i = 0; i < NUM(flags); i++) {
        prefer_staging();
        CLEANUP(work_close) work work;
        work_open_as(&work, &plan, 0, flags[i], KVMEM_COMPUTE_IDLE);
        const kvmem_compared_method explanation =
            flight_explain(&work.flight, "in a graph: CUDA kernel, estimated ");
        CHECK_EQ(explanation.method, KVMEM_METHOD_CUDA_STAGED);
        run_by_graph(&work);
    }
    EXPECT_OK(kvmem_cuda_use_default_rates(0, ERR));
}

/* A batch of copies is the fastest path, and a kernel in a graph. The rates are known, so nothing has needed
   a kernel before. Loading it during the capture would invalidate the capture. */
TEST(the_first_capture_loads_no_kernel) {
    prefer_batches();
    kvmem_block_pair pairs[64];
    for (uint32_t i = 0; i < NUM(pairs); i++) pairs[i] = (kvmem_block_pair){i * 5 % NUM(pairs), i};
    const kv_move move = {pairs, NUM(pairs), 0, 0, 3};
    const kvmem_layout_config config =
        WITH(side_config(&kv_kinds[1]), it.num_blocks = NUM(pairs), it.inner_dim = 64 * it.inner_dim);
    const flight_plan plan = {.from = PLACE_DEVICE, .to = PLACE_PINNED, .source = &config, .move = &move};
    CLEANUP(work_close) work work;
    work_open_as(&work, &plan, 0, KVMEM_TRANSFER_ZERO_COPY, KVMEM_COMPUTE_IDLE);
    const kvmem_compared_method explanation =
        flight_explain(&work.flight, "in a graph: CUDA kernel, estimated ");
    CHECK_EQ(explanation.method, KVMEM_METHOD_CUDA_BATCH);
    run_by_graph(&work);
    EXPECT_OK(kvmem_cuda_use_default_rates(0, ERR));
}

/* Elastic memory is freed without a question, which invalidates captures. */
static void create_and_destroy_regions(void) {
    OWN(kvmem_region, elastic, kvmem_region_create_elastic,
        REF(OPTIONS(kvmem_elastic_options, it.size = MIB)));
    EXPECT_OK(kvmem_region_commit(elastic, 0, MIB, ERR));
}

/* With a queue, a thread of kvmem waits for the end. */
static void move_with_a_queue(flight *flight) {
    OWN(kvmem_queue, queue, kvmem_queue_create);
    OWNED(kvmem_transfer) transfer = flight_create_another(flight, it.transfer.queue = queue);
    EXPECT_OK(kvmem_transfer_submit(transfer, NULL, ERR));
    CHECK_EQ(next_completion(queue).status, KVMEM_STATUS_OK);
}

/* The driver invalidates a capture if memory is allocated or an event is queried during it, on any thread. */
TEST(kvmem_does_not_invalidate_captures) {
    static const CUstreamCaptureMode modes[] = {
        CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED};
    for (size_t i = 0; i < NUM(modes); i++) {
        OPENED(work, captured, PLACE_PINNED, PLACE_DEVICE, KVMEM_METHOD_CUDA_KERNEL);
        OPENED(work, other, PLACE_PINNED, PLACE_DEVICE, 0);
        stream_begin_capture(&captured.stream, modes[i]);
        create_and_destroy_regions();
        OWN(kvmem_region, device, kvmem_region_create_device,
            REF(OPTIONS(kvmem_device_options, it.size = MIB)));
        OWN(kvmem_region, pinned, kvmem_region_create_pinned,
            REF(OPTIONS(kvmem_pinned_options, it.size = MIB)));
        flight_submit_on(&captured.flight, captured.stream.handle);
        move_with_a_queue(&other.flight);
        flight_submit_on(&other.flight, other.stream.handle);
        EXPECT_OK(kvmem_transfer_wait(other.flight.transfer, PATIENCE, ERR));
        CUgraphExec graph = stream_end_capture(&captured.stream);
        launch_and_check(&captured, graph, 5);
        flight_check_moved(&other.flight);
        stream_destroy_graph(&captured.stream, graph);
    }
}

static void ask_for_the_legacy_stream(unsigned stream_flags, CUresult expected) {
    CLEANUP(stream_close) stream stream;
    stream_open_with(&stream, 0, stream_flags);
    const uint64_t memory = engine_allocate(0, MIB);
    stream_begin_capture(&stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    enter_device(0);
    CHECK_EQ(driver_get()->cuStreamIsCapturing(CU_STREAM_LEGACY, &status), expected);
    CU(cuMemsetD8Async(memory, 1, MIB, stream.handle));
    leave_device(0);
    stream_drop_capture(&stream);
    engine_free(0, memory);
}

/* What kvmem relies on: the question says that a blocking stream is captured, and leaves each capture
   valid. */
TEST(asking_whether_the_legacy_stream_is_captured_leaves_captures_valid) {
    ask_for_the_legacy_stream(0, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    ask_for_the_legacy_stream(CU_STREAM_NON_BLOCKING, CUDA_SUCCESS);
}

TEST(a_transfer_for_which_staging_is_requested_is_rejected_in_a_graph) {
    OPENED(work, work, PLACE_DEVICE, PLACE_PINNED, KVMEM_METHOD_CUDA_STAGED);
    stream_begin_capture(&work.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "request another method",
                   kvmem_transfer_submit_on_stream(work.flight.transfer, NULL, work.stream.handle, ERR));
    stream_drop_capture(&work.stream);
    run_in_order(&work, 3);
}

TEST(elastic_memory_is_rejected_in_a_graph) {
    static const route routes[] = {{PLACE_ELASTIC, PLACE_PINNED}, {PLACE_PINNED, PLACE_ELASTIC}};
    for (size_t i = 0; i < NUM(routes); i++) {
        OPENED(work, work, routes[i].from, routes[i].to, 0);
        stream_begin_capture(&work.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "elastic",
                       kvmem_transfer_submit_on_stream(work.flight.transfer, NULL, work.stream.handle, ERR));
        stream_drop_capture(&work.stream);
        flight_submit_on(&work.flight, work.stream.handle);
        flight_finish(&work.flight);
    }
}

/* A wait for a captured stream invalidates the capture. Until the capture is ended, submitting fails. */
TEST(submitting_on_an_invalidated_capture_fails) {
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
