// SPDX-License-Identifier: Apache-2.0
// Transfers from and to GPU memory that get new pairs with each submit: by every method, with more and fewer
// blocks than before, on streams, in graphs, by layer, verified.
#include "gpu_flight.h"
#include "caller_context.h"

#define BLOCKS 600
#define LAYERS 3

/* A transfer of pairs that change from step to step. */
typedef struct steps {
    flight flight;
    stream stream;
    kv_move move; /* of the step */
    kvmem_block_pair pairs[BLOCKS];
} steps;

static void steps_open(steps *steps, place from, place to, uint32_t method, uint64_t flags) {
    static const kvmem_block_pair initial[] = {{1, 2}, {3, 0}};
    static const kv_move first = {initial, NUM(initial), 0, 0, LAYERS};
    const kvmem_layout_config source = WITH(side_config(&kv_kinds[1]), it.num_blocks = BLOCKS);
    const kvmem_layout_config destination = WITH(side_config(&kv_kinds[0]), it.num_blocks = BLOCKS);
    stream_open(&steps->stream, 0);
    flight_open(&steps->flight, .from = from, .to = to, .source = &source, .destination = &destination,
                .move = &first);
    flight_create(&steps->flight, it.transfer.method = method, KV_SET_FLAGS(flags));
    steps->flight.move = &steps->move;
}

static void steps_close(steps *steps) {
    flight_close(&steps->flight);
    stream_close(&steps->stream);
}

/* Sets the pairs of the next step: `count` scattered blocks, others in each round. */
static void choose_pairs(steps *steps, uint32_t count, uint32_t round) {
    for (uint32_t i = 0; i < count; i++)
        steps->pairs[i] = (kvmem_block_pair){(7 * i + 13 * round) % BLOCKS, (11 * i + round) % BLOCKS};
    steps->move = (kv_move){steps->pairs, count, 0, 0, LAYERS};
}

static kvmem_submit_options step_of(const kv_move *move) {
    return OPTIONS(kvmem_submit_options, it.pairs = move->pairs, it.num_pairs = move->num_pairs);
}

static void submit_step(steps *steps) {
    const kvmem_submit_options step = step_of(&steps->move);
    EXPECT_OK(kvmem_transfer_submit(steps->flight.transfer, &step, ERR));
}

static kvmem_status submit_on_stream(const steps *steps, const kv_move *move) {
    const kvmem_submit_options step = step_of(move);
    return kvmem_transfer_submit_on_stream(steps->flight.transfer, &step, steps->stream.handle, ERR);
}

static void run_step(steps *steps, uint32_t count, uint32_t round) {
    choose_pairs(steps, count, round);
    submit_step(steps);
    flight_finish(&steps->flight);
}

/* A few pairs fit in the parameter of the kernel, hundreds do not. */
static const uint32_t counts[] = {1, 16, 400, 2, 600, 64, 399};

static void run_by(place from, place to, uint32_t method) {
    OPENED(steps, steps, from, to, method, 0);
    for (uint32_t round = 0; round < NUM(counts); round++) {
        run_step(&steps, counts[round], round);
        const kvmem_transfer_info info = flight_info(&steps.flight);
        CHECK_EQ(info.num_pieces, counts[round] * LAYERS * 2);
        CHECK(method_is_cuda(info.method) && (method == 0 || info.method == method));
    }
}

static void run_all(uint32_t method) {
    run_by(PLACE_PINNED, PLACE_DEVICE, method);
    run_by(PLACE_DEVICE, PLACE_PINNED, method);
    if (method != KVMEM_METHOD_CUDA_STAGED) run_by(PLACE_DEVICE, PLACE_DEVICE, method);
}

TEST_CALL(on_the_path_selected_for_each_step, run_all(0))
TEST_CALL(on_the_kernel_path, run_all(KVMEM_METHOD_CUDA_KERNEL))
TEST_CALL(on_the_copy_path, run_all(KVMEM_METHOD_CUDA_COPY))
TEST_CALL(on_the_batch_path, run_all(KVMEM_METHOD_CUDA_BATCH))
TEST_CALL(on_the_2d_path, run_all(KVMEM_METHOD_CUDA_2D))
TEST_CALL(on_the_staged_path, run_all(KVMEM_METHOD_CUDA_STAGED))

TEST(memory_that_is_page_locked_in_parts) {
    run_by(PLACE_LOCKED_PARTS, PLACE_DEVICE, KVMEM_METHOD_CUDA_BATCH);
    run_by(PLACE_DEVICE, PLACE_PARTLY_LOCKED, 0);
}

TEST(the_explanation_is_that_of_the_latest_pairs) {
    OPENED(steps, steps, PLACE_PINNED, PLACE_DEVICE, 0, 0);
    for (uint32_t round = 0; round < NUM(counts); round++) {
        run_step(&steps, counts[round], round);
        CHECK(flight_info(&steps.flight).num_moves <= counts[round] * LAYERS * 2);
    }
}

TEST(invalid_pairs_fail_without_effect) {
    static const kvmem_block_pair twice[] = {{1, 4}, {2, 4}}, outside[] = {{1, 4}, {2, BLOCKS}};
    static const struct {
        kv_move move;
        kvmem_status status;
    } bad[] = {{{twice, 2, 0, 0, LAYERS}, KVMEM_STATUS_INVALID_ARGUMENT},
               {{outside, 2, 0, 0, LAYERS}, KVMEM_STATUS_OUT_OF_RANGE}};
    OPENED(steps, steps, PLACE_DEVICE, PLACE_PINNED, 0, 0);
    run_step(&steps, 40, 3);
    for (size_t i = 0; i < NUM(bad); i++) {
        const kvmem_submit_options step = step_of(&bad[i].move);
        EXPECT(bad[i].status, kvmem_transfer_submit(steps.flight.transfer, &step, ERR));
        EXPECT(bad[i].status, submit_on_stream(&steps, &bad[i].move));
        EXPECT_OK(kvmem_transfer_poll(steps.flight.transfer, ERR));
    }
    flight_refill(&steps.flight, 9);
    flight_run(&steps.flight);
}

/* A run on a stream is in flight until the stream has executed it. */
TEST(steps_on_a_stream_run_in_order) {
    static const kvmem_block_pair pair[] = {{0, 0}};
    static const kv_move other = {pair, 1, 0, 0, LAYERS};
    OPENED(steps, steps, PLACE_DEVICE, PLACE_DEVICE, 0, 0);
    for (uint32_t round = 0; round < NUM(counts); round++) {
        choose_pairs(&steps, counts[round], round);
        EXPECT_OK(submit_on_stream(&steps, &steps.move));
        const kvmem_status status = submit_on_stream(&steps, &other);
        CHECK(status == KVMEM_STATUS_BUSY || status == KVMEM_STATUS_OK); /* the first may be complete */
        EXPECT_OK(kvmem_transfer_wait(steps.flight.transfer, PATIENCE, ERR));
        kv_expect_moved(&steps.flight.destination.model, &steps.flight.source.model, &steps.move);
        if (status == KVMEM_STATUS_OK)
            kv_expect_moved(&steps.flight.destination.model, &steps.flight.source.model, &other);
        side_check(&steps.flight.destination);
    }
}

TEST(the_first_blocks_are_submitted_on_a_stream_or_by_the_call_that_creates) {
    OPENED(steps, steps, PLACE_PINNED, PLACE_DEVICE, 0, 0);
    const kvmem_layout *source = steps.flight.source.model.layout;
    const kvmem_layout *destination = steps.flight.destination.model.layout;
    choose_pairs(&steps, 30, 1);
    const kv_job options = flight_options(&steps.flight);
    flight_destroy_transfer(&steps.flight);
    EXPECT_OK(kvmem_transfer_create(source, destination, &options.transfer, &steps.flight.transfer, ERR));
    EXPECT(KVMEM_STATUS_INVALID_STATE,
           kvmem_transfer_submit_on_stream(steps.flight.transfer, NULL, steps.stream.handle, ERR));
    EXPECT_OK(kvmem_transfer_submit_on_stream(steps.flight.transfer, &options.run, steps.stream.handle, ERR));
    flight_finish(&steps.flight);
    flight_destroy_transfer(&steps.flight);
    flight_refill(&steps.flight, 8);
    EXPECT_OK(kvmem_transfer_start(source, destination, &options.transfer, &options.run,
                                   &steps.flight.transfer,
                                   ERR));
    flight_finish(&steps.flight);
}

static CUgraphExec capture(steps *steps) {
    stream_begin_capture(&steps->stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT_OK(submit_on_stream(steps, &steps->move));
    return stream_end_capture(&steps->stream);
}

/* Later steps of the transfer do not change them, also if the pairs do not fit in the parameter of the
   kernel. */
TEST(graphs_keep_the_pairs_that_they_were_captured_with) {
    static const uint32_t methods[] = {KVMEM_METHOD_CUDA_KERNEL, KVMEM_METHOD_CUDA_COPY};
    static const uint32_t captured[] = {20, 500};
    for (size_t i = 0; i < NUM(methods); i++) {
        OPENED(steps, steps, PLACE_PINNED, PLACE_DEVICE, methods[i], 0);
        CUgraphExec graphs[NUM(captured)];
        for (uint32_t k = 0; k < NUM(captured); k++) {
            choose_pairs(&steps, captured[k], 1 + k);
            graphs[k] = capture(&steps);
        }
        for (uint32_t round = 0; round < 3; round++) {
            run_step(&steps, 300 + round, 5 + round);
            choose_pairs(&steps, captured[round % 2], 1 + round % 2); /* the pairs of the graph */
            flight_refill(&steps.flight, 10 + round);
            stream_launch(&steps.stream, graphs[round % 2]);
            flight_check_moved(&steps.flight);
        }
        stream_destroy_graph(&steps.stream, graphs[0]);
        stream_destroy_graph(&steps.stream, graphs[1]);
    }
}

TEST(by_layer_and_verified) {
    static const uint64_t flags[] = {KVMEM_TRANSFER_BY_LAYER, KV_VERIFY};
    for (size_t i = 0; i < NUM(flags); i++) {
        OPENED(steps, steps, PLACE_DEVICE, PLACE_PINNED, 0, flags[i]);
        for (uint32_t round = 0; round < NUM(counts); round++) {
            run_step(&steps, counts[round], round);
            const uint64_t layers = transfer_info(steps.flight.transfer).layers_moved;
            CHECK_EQ(layers, LAYERS);
        }
    }
}

TEST(a_stream_waits_for_the_last_step) {
    OPENED(steps, steps, PLACE_PINNED, PLACE_DEVICE, 0, KVMEM_TRANSFER_BY_LAYER);
    const kvmem_transfer *transfer = steps.flight.transfer;
    for (uint32_t round = 0; round < 3; round++) {
        choose_pairs(&steps, counts[round], round);
        submit_step(&steps);
        EXPECT_OK(kvmem_transfer_wait_on_stream(transfer, 2, steps.stream.handle, ERR));
        EXPECT_OK(kvmem_transfer_wait_on_stream(transfer, 0, steps.stream.handle, ERR));
        stream_await(&steps.stream);
        flight_finish(&steps.flight);
    }
}
