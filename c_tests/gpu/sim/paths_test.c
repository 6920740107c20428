// SPDX-License-Identifier: Apache-2.0
// Paths of GPU copies under a driver that holds work back, fails late, or can't do something: thousands of
// blocks in flight, order on streams, whom a failure belongs to, and what is taken instead.
#include "control.h"
#include "patience.h"
#include "sides.h"
#include "stance.h"

static const kvmem_block_pair pairs[] = {{6, 0}, {0, 5}, {1, 6}, {4, 2}};
static const kv_move move = {pairs, NUM(pairs), 0, 0, 3};

static kvmem_transfer *create(const side *source, const side *destination, const kv_move *moved,
                              uint32_t path, kvmem_queue *queue, uint64_t user_data) {
    kvmem_transfer_options options = WITH(kv_transfer_options(moved), it.path = path, it.queue = queue,
                                          it.user_data = user_data);
    GET(kvmem_transfer *, transfer, kvmem_transfer_create, source->model.layout, destination->model.layout,
        &options);
    return transfer;
}

/* Blocks of 64 bytes, in an order in which no two follow each other. */
enum { BLOCKS = 16384 };

static kvmem_layout_config many_blocks(void) {
    return WITH(kv_config(&kv_kinds[0]), it.num_blocks = BLOCKS, it.num_layers = 1, it.outer_dim = 1,
                it.page_size = 4, it.inner_dim = 8);
}

/* Transfers of `count` scattered blocks each, all under way at once; every one lands and is reported once. */
static void fly_many(size_t transfers, uint32_t blocks, uint32_t path, uint64_t most_launched) {
    const kvmem_layout_config config = many_blocks();
    side source;
    side destination;
    kvmem_block_pair *scattered = test_allocate(blocks * sizeof(*scattered));
    for (uint32_t i = 0; i < blocks; i++) {
        scattered[i] = (kvmem_block_pair){i, BLOCKS - 1 - i};
    }
    const kv_move moved = {scattered, blocks, 0, 0, 1};
    SIM(sim_reset());
    side_open(&source, PLACE_PINNED, 0, &config, NULL, 1);
    side_open(&destination, PLACE_DEVICE, 0, &config, NULL, 2);
    GET(kvmem_queue *, queue, kvmem_queue_create);
    kvmem_transfer **flying = test_allocate(transfers * sizeof(kvmem_transfer *));
    CLEANUP(test_free) bool *reported = test_allocate(transfers * sizeof(bool));
    for (size_t i = 0; i < transfers; i++) {
        flying[i] = create(&source, &destination, &moved, path, queue, i);
    }
    SIM(sim_hold());
    for (size_t i = 0; i < transfers; i++) {
        EXPECT_OK(kvmem_transfer_submit(flying[i], ERR)); /* returns, whatever the driver is at */
    }
    kvmem_completion completion;
    size_t count = 1;
    EXPECT_OK(kvmem_queue_poll(queue, &completion, 1, &count, ERR));
    CHECK_EQ(count, 0);
    CHECK(SIM(sim_calls("cuLaunchKernel")) <= most_launched);
    SIM(sim_go());
    for (size_t i = 0; i < transfers; i++) {
        EXPECT_OK(kvmem_queue_wait(queue, PATIENCE, &completion, 1, &count, ERR));
        CHECK_EQ(completion.status, KVMEM_STATUS_OK);
        CHECK(!reported[completion.user_data]);
        reported[completion.user_data] = true;
    }
    side_check_moved(&destination, &source, &moved);
    for (size_t i = 0; i < transfers; i++) {
        CALL(kvmem_transfer_destroy(flying[i]));
    }
    CALL(kvmem_queue_destroy(queue));
    side_close(&source);
    side_close(&destination);
    free(scattered);
    free(flying);
}

/* 256 KiB of runs each, of which either half of the descriptor ring holds 16. */
TEST_CALL(a_full_descriptor_ring_loses_nothing, fly_many(100, BLOCKS, KVMEM_PATH_CUDA_KERNEL, 32))

TEST(more_runs_than_streams_lose_nothing) {
    fly_many(1000, 3, KVMEM_PATH_CUDA_KERNEL, 64);
    fly_many(300, 3, KVMEM_PATH_CUDA_COPY, 0);
}

TEST(staged_runs_wait_for_each_other) {
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    side destination[20];
    kvmem_transfer *transfers[NUM(destination)];
    SIM(sim_reset());
    OPENED(side, source, PLACE_DEVICE, 0, &config, NULL, 1);
    OWN(kvmem_queue, queue, kvmem_queue_create);
    for (size_t i = 0; i < NUM(destination); i++) {
        side_open(&destination[i], PLACE_PINNED, 0, &config, NULL, 2);
        transfers[i] = create(&source, &destination[i], &move, KVMEM_PATH_CUDA_STAGED, queue, i);
    }
    SIM(sim_hold());
    for (size_t i = 0; i < NUM(destination); i++) {
        EXPECT_OK(kvmem_transfer_submit(transfers[i], ERR));
    }
    SIM(sim_go());
    for (size_t i = 0; i < NUM(destination); i++) {
        EXPECT_OK(kvmem_transfer_wait(transfers[i], PATIENCE, ERR));
        side_check_moved(&destination[i], &source, &move);
        CALL(kvmem_transfer_destroy(transfers[i]));
        side_close(&destination[i]);
    }
}

/* Driver calls of a transfer by rows, which lands. */
static uint64_t calls_of_rows(const kv_kind *from, const kv_kind *to, const kv_move *moved,
                              kv_outers outers) {
    const kvmem_layout_config here = side_config(from);
    const kvmem_layout_config there = side_config(to);
    SIM(sim_reset());
    OPENED(side, source, PLACE_PINNED, 0, &here, NULL, 1);
    OPENED(side, destination, PLACE_DEVICE, 0, &there, NULL, 2);
    kvmem_transfer_options options = WITH(kv_outers_options(moved, outers), it.path = KVMEM_PATH_CUDA_2D);
    GET(kvmem_transfer *, transfer, kvmem_transfer_create, source.model.layout, destination.model.layout,
        &options);
    const uint64_t before = SIM(sim_calls("cuMemcpy2DAsync_v2"));
    RUN(transfer);
    const uint64_t calls = SIM(sim_calls("cuMemcpy2DAsync_v2")) - before;
    CALL(kvmem_transfer_destroy(transfer));
    kv_expect_outers_moved(&destination.model, &source.model, moved, outers);
    side_check(&destination);
    return calls;
}

TEST(regular_strides_take_few_calls) {
    static const kvmem_block_pair every_second[] = {{0, 0}, {2, 1}, {4, 2}, {6, 3}};
    static const kvmem_block_pair run[] = {{2, 0}, {3, 1}, {4, 2}, {5, 3}};
    const kv_move regular = {every_second, NUM(every_second), 0, 0, 3};
    const kv_move neighbours = {run, NUM(run), 0, 0, 3};
    const kv_outers all = {0, 0, 2};
    const kv_outers values = {1, 1, 1};
    CHECK_EQ(calls_of_rows(&kv_kinds[0], &kv_kinds[0], &regular, all), 1);
    CHECK_EQ(calls_of_rows(&kv_kinds[1], &kv_kinds[0], &regular, all), 3);
    CHECK_EQ(calls_of_rows(&kv_kinds[2], &kv_kinds[1], &regular, all), 6);
    CHECK_EQ(calls_of_rows(&kv_kinds[0], &kv_kinds[0], &neighbours, values), 1);
    CHECK_EQ(calls_of_rows(&kv_kinds[1], &kv_kinds[1], &neighbours, values), 3);
}

/* A driver call fails, at once or when its work is done: the transfer of that call fails, and no other. */
static void fail_once(uint32_t path, const char *function, uint64_t nth, bool later) {
    const kvmem_layout_config config = side_config(&kv_kinds[2]);
    SIM(sim_reset());
    OPENED(side, source, PLACE_DEVICE, 0, &config, NULL, 1);
    OPENED(side, destination, PLACE_PINNED, 0, &config, NULL, 2);
    kvmem_transfer *failing = create(&source, &destination, &move, path, NULL, 0);
    kvmem_transfer *other = create(&source, &destination, &move, path, NULL, 0);
    (later ? SIM(sim_fail_later) : SIM(sim_fail))(function, nth, CUDA_ERROR_LAUNCH_FAILED);
    EXPECT_OK(kvmem_transfer_submit(failing, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_CUDA, "CUDA_ERROR_LAUNCH_FAILED",
                   kvmem_transfer_wait(failing, PATIENCE, ERR));
    RUN(other);
    side_check_moved(&destination, &source, &move);
    RUN(failing);
    CALL(kvmem_transfer_destroy(failing));
    CALL(kvmem_transfer_destroy(other));
    kvmem_transfer *fresh = create(&source, &destination, &move, path, NULL, 0);
    RUN(fresh);
    CALL(kvmem_transfer_destroy(fresh));
    side_check(&destination);
}

TEST(a_failure_belongs_to_its_transfer) {
    for (int later = 0; later < 2; later++) {
        fail_once(KVMEM_PATH_CUDA_KERNEL, "cuLaunchKernel", 1, later);
        fail_once(KVMEM_PATH_CUDA_BATCH, "cuMemcpyBatchAsync", 1, later);
        fail_once(KVMEM_PATH_CUDA_BATCH, "cuMemcpyBatchAsync", 2, later);
        fail_once(KVMEM_PATH_CUDA_COPY, "cuMemcpyAsync", 3, later);
        fail_once(KVMEM_PATH_CUDA_STAGED, "cuLaunchKernel", 1, later);
        fail_once(KVMEM_PATH_CUDA_STAGED, "cuMemcpyBatchAsync", 1, later);
    }
    fail_once(KVMEM_PATH_CUDA_STAGED, "cuEventRecord", 2, false);
    fail_once(KVMEM_PATH_CUDA_STAGED, "cuStreamWaitEvent", 3, false);
}

/* Nothing of it is done before what the stream was given first, nor after what it was given next. */
TEST(on_a_stream_work_waits_for_its_turn) {
    static const uint32_t paths[] = {KVMEM_PATH_CUDA_COPY, KVMEM_PATH_CUDA_KERNEL, KVMEM_PATH_CUDA_STAGED};
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    for (size_t i = 0; i < NUM(paths); i++) {
        side source;
        side destination;
        CUstream stream = NULL;
        SIM(sim_reset());
        retain_device(0);
        side_open(&source, PLACE_DEVICE, 0, &config, NULL, 1);
        side_open(&destination, PLACE_PINNED, 0, &config, NULL, 2);
        kvmem_transfer *transfer = create(&source, &destination, &move, paths[i], NULL, 0);
        unsigned char *fresh = test_allocate(source.model.size);
        kv_fill(fresh, source.model.size, 3);
        enter_device(0);
        CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        SIM(sim_hold());
        CU(cuMemcpyHtoDAsync_v2(source.base, fresh, source.model.size, stream));
        leave_device(0);
        EXPECT_OK(kvmem_transfer_submit_on_stream(transfer, stream, ERR));
        EXPECT(KVMEM_STATUS_BUSY, kvmem_transfer_submit_on_stream(transfer, stream, ERR));
        EXPECT(KVMEM_STATUS_BUSY, kvmem_transfer_submit(transfer, ERR));
        EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait(transfer, MILLISECONDS(20), ERR));
        side_check(&destination);
        SIM(sim_go());
        EXPECT_OK(kvmem_transfer_wait(transfer, PATIENCE, ERR));
        memcpy(source.model.expected, fresh, source.model.size);
        side_check_moved(&destination, &source, &move);
        CALL(kvmem_transfer_destroy(transfer));
        CU_ON(0, cuStreamDestroy_v2(stream));
        side_close(&source);
        side_close(&destination);
        release_device(0);
        free(fresh);
    }
}

/* A driver that can't compile the kernel: its own copies are taken, and the reason is told. */
TEST(without_a_kernel_the_driver_copies) {
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    SIM(sim_reset());
    OPENED(side, source, PLACE_DEVICE, 0, &config, NULL, 1);
    OPENED(side, destination, PLACE_DEVICE, 0, &config, NULL, 2);
    SIM(sim_fail("cuModuleLoadData", SIM_EVERY_CALL, CUDA_ERROR_NO_BINARY_FOR_GPU));
    kvmem_transfer *transfer = create(&source, &destination, &move, 0, NULL, 0);
    kvmem_transfer_explanation explanation;
    GET(kvmem_blob *, text, kvmem_transfer_explain, transfer, &explanation);
    CHECK(explanation.path != KVMEM_PATH_CUDA_KERNEL);
    CHECK_HAS(kvmem_blob_data(text), "CUDA_ERROR_NO_BINARY_FOR_GPU");
    CALL(kvmem_blob_destroy(text));
    RUN(transfer);
    CALL(kvmem_transfer_destroy(transfer));
    side_check_moved(&destination, &source, &move);
    kvmem_transfer_options options = WITH(kv_transfer_options(&move), it.path = KVMEM_PATH_CUDA_KERNEL);
    EXPECT(KVMEM_STATUS_CUDA, kvmem_transfer_create(source.model.layout, destination.model.layout, &options,
                                                    &transfer, ERR));
    SIM(sim_reset());
    transfer = create(&source, &destination, &move, 0, NULL, 0);
    GET(kvmem_transfer_info, info, kvmem_transfer_get_info, transfer);
    CHECK_EQ(info.path, KVMEM_PATH_CUDA_KERNEL);
    CALL(kvmem_transfer_destroy(transfer));
}

/* A device without room for staging memory: another path is taken. */
TEST(without_staging_memory_another_path_is_taken) {
    kvmem_layout_config config = WITH(kv_config(&kv_kinds[0]), it.num_blocks = 64, it.page_size = 16,
                                      it.inner_dim = 512);
    static kvmem_block_pair blocks[64];
    for (uint32_t i = 0; i < NUM(blocks); i++) {
        blocks[i] = (kvmem_block_pair){i * 7 % 64, i};
    }
    const kv_move all = {blocks, NUM(blocks), 0, 0, 3};
    kvmem_layout_config separate = config;
    separate.kind = KVMEM_LAYOUT_LAYER_SEPARATE;
    separate.block_dim = KVMEM_BLOCK_DIM_SECOND;
    SIM(sim_reset());
    OPENED(side, source, PLACE_DEVICE, 0, &separate, NULL, 1);
    OPENED(side, destination, PLACE_PINNED, 0, &config, NULL, 2);
    kvmem_transfer *transfer = create(&source, &destination, &all, KVMEM_PATH_CUDA_STAGED, NULL, 0);
    CALL(kvmem_transfer_destroy(transfer));
    SIM(sim_fail("cuMemAlloc_v2", SIM_EVERY_CALL, CUDA_ERROR_OUT_OF_MEMORY));
    kvmem_transfer_options options = kv_transfer_options(&all);
    options.staging_size = 256 * MIB; /* more than is there already */
    options.path = KVMEM_PATH_CUDA_STAGED;
    EXPECT(KVMEM_STATUS_OUT_OF_MEMORY, kvmem_transfer_create(source.model.layout, destination.model.layout,
                                                             &options, &transfer, ERR));
    options.path = 0;
    EXPECT_OK(kvmem_transfer_create(source.model.layout, destination.model.layout, &options, &transfer, ERR));
    RUN(transfer);
    CALL(kvmem_transfer_destroy(transfer));
    SIM(sim_reset());
    side_check_moved(&destination, &source, &all);
}

/* What copies on a GPU share goes with the last layout of it. */
TEST(nothing_stays_behind) {
    CLEANUP(await_live) const sim_counts before = sim_live_now();
    fly_many(100, 300, KVMEM_PATH_CUDA_KERNEL, 64);
    fail_once(KVMEM_PATH_CUDA_STAGED, "cuLaunchKernel", 1, true);
}
