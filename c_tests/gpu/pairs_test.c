// SPDX-License-Identifier: Apache-2.0
// Transfers from and to GPU memory that get new pairs with each submission: by every path, with more and
// fewer blocks than before, on streams, in graphs, by layer, verified.
#include "sides.h"
#include "stance.h"

#define BLOCKS 600
#define LAYERS 3

typedef struct steps {
    side source, destination;
    kvmem_transfer *transfer;
    CUstream stream;
    kvmem_block_pair pairs[BLOCKS];
} steps;

static void prepare(steps *steps, place from, place to, uint32_t path, uint64_t flags) {
    static const kvmem_block_pair initial[] = {{1, 2}, {3, 0}};
    static const kv_move move = {initial, NUM(initial), 0, 0, LAYERS};
    kvmem_layout_config source = side_config(&kv_kinds[1]);
    kvmem_layout_config destination = side_config(&kv_kinds[0]);
    source.num_blocks = destination.num_blocks = BLOCKS;
    retain_device(0);
    side_open(&steps->source, from, 0, &source, NULL, 1);
    side_open(&steps->destination, to, 0, &destination, NULL, 2);
    CU_ON(0, cuStreamCreate(&steps->stream, CU_STREAM_NON_BLOCKING));
    kvmem_transfer_options options = WITH(kv_transfer_options(&move), it.path = path, it.flags = flags);
    steps->transfer = NULL;
    EXPECT_OK(kvmem_transfer_create(steps->source.model.layout, steps->destination.model.layout, &options,
                                    &steps->transfer, ERR));
}

static void clean_up(steps *steps) {
    CALL(kvmem_transfer_destroy(steps->transfer));
    CU_ON(0, cuStreamDestroy_v2(steps->stream));
    side_close(&steps->source);
    side_close(&steps->destination);
    release_device(0);
}

/* As many scattered blocks, other ones in each round. */
static kv_move scattered(steps *steps, uint32_t count, uint32_t round) {
    for (uint32_t i = 0; i < count; i++) {
        steps->pairs[i] = (kvmem_block_pair){(7 * i + 13 * round) % BLOCKS, (11 * i + round) % BLOCKS};
    }
    return (kv_move){steps->pairs, count, 0, 0, LAYERS};
}

static kvmem_submit_options step_of(const kv_move *move) {
    return OPTIONS(kvmem_submit_options, it.pairs = move->pairs, it.num_pairs = move->num_pairs);
}

static void expect_moved(steps *steps, const kv_move *move) {
    EXPECT_OK(kvmem_transfer_wait(steps->transfer, PATIENCE, ERR));
    kv_expect_moved(&steps->destination.model, &steps->source.model, move);
    side_check(&steps->destination);
}

static void run_step(steps *steps, const kv_move *move) {
    const kvmem_submit_options step = step_of(move);
    EXPECT_OK(kvmem_transfer_submit_pairs(steps->transfer, &step, ERR));
    expect_moved(steps, move);
}

/* A few go with a launch of the kernel, hundreds do not. */
static const uint32_t counts[] = {1, 16, 400, 2, 600, 64, 399};

static void run_by(place from, place to, uint32_t path) {
    CLEANUP(clean_up) steps steps;
    prepare(&steps, from, to, path, 0);
    for (uint32_t round = 0; round < NUM(counts); round++) {
        const kv_move move = scattered(&steps, counts[round], round);
        run_step(&steps, &move);
        GET(kvmem_transfer_info, info, kvmem_transfer_get_info, steps.transfer);
        CHECK_EQ(info.num_pieces, counts[round] * LAYERS * 2);
        CHECK(path_is_cuda(info.path) && (path == 0 || info.path == path));
    }
}

static void run_all(uint32_t path) {
    run_by(PLACE_PINNED, PLACE_DEVICE, path);
    run_by(PLACE_DEVICE, PLACE_PINNED, path);
    if (path != KVMEM_PATH_CUDA_STAGED) {
        run_by(PLACE_DEVICE, PLACE_DEVICE, path);
    }
}

TEST_CALL(by_the_path_that_suits_the_blocks, run_all(0))
TEST_CALL(by_the_kernel, run_all(KVMEM_PATH_CUDA_KERNEL))
TEST_CALL(by_the_drivers_copies, run_all(KVMEM_PATH_CUDA_COPY))
TEST_CALL(by_the_drivers_batch, run_all(KVMEM_PATH_CUDA_BATCH))
TEST_CALL(by_the_drivers_rows, run_all(KVMEM_PATH_CUDA_2D))
TEST_CALL(by_staging, run_all(KVMEM_PATH_CUDA_STAGED))

TEST(memory_that_is_locked_in_pieces_is_cut_where_each_step_needs_it) {
    run_by(PLACE_PIECES, PLACE_DEVICE, KVMEM_PATH_CUDA_BATCH);
    run_by(PLACE_DEVICE, PLACE_PARTLY_LOCKED, 0);
}

/* Whichever path is selected for a list of pairs is the one that is reported. */
TEST(the_explanation_is_of_the_last_pairs) {
    CLEANUP(clean_up) steps steps;
    prepare(&steps, PLACE_PINNED, PLACE_DEVICE, 0, 0);
    for (uint32_t round = 0; round < NUM(counts); round++) {
        const kv_move move = scattered(&steps, counts[round], round);
        run_step(&steps, &move);
        kvmem_transfer_explanation explanation;
        EXPECT_OK(kvmem_transfer_explain(steps.transfer, &explanation, NULL, ERR));
        GET(kvmem_transfer_info, info, kvmem_transfer_get_info, steps.transfer);
        CHECK_EQ(explanation.path, info.path);
        CHECK_EQ(explanation.num_moves, info.num_moves);
        CHECK(info.num_moves <= counts[round] * LAYERS * 2);
    }
}

TEST(bad_pairs_change_nothing) {
    CLEANUP(clean_up) steps steps;
    prepare(&steps, PLACE_DEVICE, PLACE_PINNED, 0, 0);
    const kv_move move = scattered(&steps, 40, 3);
    run_step(&steps, &move);
    const kvmem_block_pair twice[] = {{1, 4}, {2, 4}}, outside[] = {{1, 4}, {2, BLOCKS}};
    const kv_move bad[] = {{twice, 2, 0, 0, LAYERS}, {outside, 2, 0, 0, LAYERS}};
    const kvmem_status statuses[] = {KVMEM_STATUS_INVALID_ARGUMENT, KVMEM_STATUS_OUT_OF_RANGE};
    for (size_t i = 0; i < NUM(bad); i++) {
        const kvmem_submit_options step = step_of(&bad[i]);
        EXPECT(statuses[i], kvmem_transfer_submit_pairs(steps.transfer, &step, ERR));
        EXPECT(statuses[i], kvmem_transfer_submit_pairs_on_stream(steps.transfer, &step, steps.stream, ERR));
        EXPECT_OK(kvmem_transfer_poll(steps.transfer, ERR));
    }
    side_refill(&steps.source, 9);
    EXPECT_OK(kvmem_transfer_submit(steps.transfer, ERR));
    expect_moved(&steps, &move);
}

/* Copies of the driver's to pageable memory apart, a run on a stream is in flight until the stream gets to
   it. */
TEST(on_a_stream_each_step_takes_its_place) {
    CLEANUP(clean_up) steps steps;
    prepare(&steps, PLACE_DEVICE, PLACE_DEVICE, 0, 0);
    const kv_move other = {(const kvmem_block_pair[]){{0, 0}}, 1, 0, 0, LAYERS};
    for (uint32_t round = 0; round < NUM(counts); round++) {
        const kv_move move = scattered(&steps, counts[round], round);
        const kvmem_submit_options step = step_of(&move), refused = step_of(&other);
        EXPECT_OK(kvmem_transfer_submit_pairs_on_stream(steps.transfer, &step, steps.stream, ERR));
        const kvmem_status status = kvmem_transfer_submit_pairs_on_stream(steps.transfer, &refused, steps.stream, NULL);
        CHECK(status == KVMEM_STATUS_BUSY || status == KVMEM_STATUS_OK); /* the first may be over by then */
        EXPECT_OK(kvmem_transfer_wait(steps.transfer, PATIENCE, ERR));
        if (status == KVMEM_STATUS_OK) {
            kv_expect_moved(&steps.destination.model, &steps.source.model, &move);
            expect_moved(&steps, &other);
        } else {
            expect_moved(&steps, &move);
        }
    }
}

TEST(one_call_creates_and_starts_on_a_stream) {
    CLEANUP(clean_up) steps steps;
    prepare(&steps, PLACE_PINNED, PLACE_DEVICE, 0, 0);
    const kv_move move = scattered(&steps, 30, 1);
    const kvmem_transfer_options options = kv_transfer_options(&move);
    GET(kvmem_transfer *, started, kvmem_transfer_start_on_stream, steps.source.model.layout,
        steps.destination.model.layout, &options, steps.stream);
    EXPECT_OK(kvmem_transfer_wait(started, PATIENCE, ERR));
    kv_expect_moved(&steps.destination.model, &steps.source.model, &move);
    side_check(&steps.destination);
    CALL(kvmem_transfer_destroy(started));
    EXPECT_OK(kvmem_transfer_start(steps.source.model.layout, steps.destination.model.layout, &options, &started,
                                   ERR));
    EXPECT_OK(kvmem_transfer_wait(started, PATIENCE, ERR));
    side_check(&steps.destination);
    CALL(kvmem_transfer_destroy(started));
}

static CUgraphExec capture(steps *steps, const kv_move *move) {
    const kvmem_submit_options step = step_of(move);
    CUgraph graph = NULL;
    CUgraphExec executable = NULL;
    CU_ON(0, cuStreamBeginCapture_v2(steps->stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_OK(kvmem_transfer_submit_pairs_on_stream(steps->transfer, &step, steps->stream, ERR));
    enter_device(0);
    CU(cuStreamEndCapture(steps->stream, &graph));
    CU(cuGraphInstantiateWithFlags(&executable, graph, 0));
    CU(cuGraphDestroy(graph));
    leave_device(0);
    return executable;
}

static void launch_and_check(steps *steps, CUgraphExec graph, const kv_move *move, uint32_t seed) {
    side_refill(&steps->source, seed);
    enter_device(0);
    CU(cuGraphLaunch(graph, steps->stream));
    CU(cuStreamSynchronize(steps->stream));
    leave_device(0);
    kv_expect_moved(&steps->destination.model, &steps->source.model, move);
    side_check(&steps->destination);
}

/* Graphs keep the pairs that they were captured with, whatever the transfer moves later: also those that do
   not go with a launch of the kernel. */
TEST(graphs_keep_the_pairs_that_they_were_captured_with) {
    static const uint32_t paths[] = {KVMEM_PATH_CUDA_KERNEL, KVMEM_PATH_CUDA_COPY};
    for (size_t i = 0; i < NUM(paths); i++) {
        CLEANUP(clean_up) steps steps;
        prepare(&steps, PLACE_PINNED, PLACE_DEVICE, paths[i], 0);
        kvmem_block_pair few[20], many[500];
        memcpy(few, scattered(&steps, NUM(few), 1).pairs, sizeof(few));
        memcpy(many, scattered(&steps, NUM(many), 2).pairs, sizeof(many));
        const kv_move moves[] = {{few, NUM(few), 0, 0, LAYERS}, {many, NUM(many), 0, 0, LAYERS}};
        CUgraphExec graphs[] = {capture(&steps, &moves[0]), capture(&steps, &moves[1])};
        for (uint32_t round = 0; round < 3; round++) {
            const kv_move other = scattered(&steps, 300 + round, 5 + round);
            run_step(&steps, &other);
            launch_and_check(&steps, graphs[round % 2], &moves[round % 2], 10 + round);
        }
        enter_device(0);
        CU(cuGraphExecDestroy(graphs[0]));
        CU(cuGraphExecDestroy(graphs[1]));
        leave_device(0);
    }
}

TEST(by_layer_and_verified) {
    static const uint64_t flags[] = {KVMEM_TRANSFER_BY_LAYER, KVMEM_TRANSFER_VERIFY};
    for (size_t i = 0; i < NUM(flags); i++) {
        CLEANUP(clean_up) steps steps;
        prepare(&steps, PLACE_DEVICE, PLACE_PINNED, 0, flags[i]);
        for (uint32_t round = 0; round < NUM(counts); round++) {
            const kv_move move = scattered(&steps, counts[round], round);
            run_step(&steps, &move);
            GET(uint64_t, layers, kvmem_transfer_get_layers, steps.transfer);
            CHECK_EQ(layers, LAYERS);
        }
    }
}

TEST(a_stream_waits_for_the_last_step) {
    CLEANUP(clean_up) steps steps;
    prepare(&steps, PLACE_PINNED, PLACE_DEVICE, 0, KVMEM_TRANSFER_BY_LAYER);
    for (uint32_t round = 0; round < 3; round++) {
        const kv_move move = scattered(&steps, counts[round], round);
        const kvmem_submit_options step = step_of(&move);
        EXPECT_OK(kvmem_transfer_submit_pairs(steps.transfer, &step, ERR));
        EXPECT_OK(kvmem_transfer_wait_on_stream(steps.transfer, 2, steps.stream, ERR));
        EXPECT_OK(kvmem_transfer_wait_on_stream(steps.transfer, 0, steps.stream, ERR));
        CU_ON(0, cuStreamSynchronize(steps.stream));
        expect_moved(&steps, &move);
    }
}
