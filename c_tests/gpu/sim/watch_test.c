// SPDX-License-Identifier: Apache-2.0
// Runs that wait, and those that need not wait for them: a driver that takes its time to accept copies keeps
// nobody who asks, and no other run's end; staged copies wait for their like and for nobody else.
#include "control.h"
#include "patience.h"
#include "sides.h"
#include "stance.h"

#include <pthread.h>

#define LAYERS 3

static const kvmem_block_pair pairs[] = {{6, 0}, {0, 5}};
static const kv_move move = {pairs, NUM(pairs), 0, 0, LAYERS};

static kvmem_transfer *create(side *source, side *destination, uint32_t path, kvmem_queue *queue) {
    kvmem_transfer_options options = WITH(kv_transfer_options(&move), it.path = path, it.queue = queue);
    GET(kvmem_transfer *, transfer, kvmem_transfer_create, source->model.layout, destination->model.layout,
        &options);
    return transfer;
}

static void await_calls(const char *function, uint64_t count) {
    const uint64_t end = patience_end();
    while (SIM(sim_calls(function)) < count) {
        patience_wait(end, function);
    }
}

static kvmem_status next_status(kvmem_queue *queue) {
    kvmem_completion completion;
    GET(size_t, count, kvmem_queue_wait, queue, PATIENCE, &completion, 1);
    return completion.status;
}

static void expect_moved(side *destination, const side *source) {
    side_check_moved(destination, source, &move);
}

/* To memory that is not page-locked: the driver returns when all bytes are there. */
TEST(a_start_that_takes_its_time_keeps_nobody) {
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    SIM(sim_reset());
    OPENED(side, pageable, PLACE_SYSTEM, 0, &config, NULL, 1);
    OPENED(side, pinned, PLACE_PINNED, 0, &config, NULL, 2);
    OPENED(side, device, PLACE_DEVICE, 0, &config, NULL, 3);
    OWN(kvmem_queue, queue, kvmem_queue_create);
    OWNED(kvmem_transfer) slow = create(&device, &pageable, KVMEM_PATH_CUDA_COPY, NULL);
    OWNED(kvmem_transfer) other = create(&device, &pinned, KVMEM_PATH_CUDA_COPY, queue);
    SIM(sim_reset());
    SIM(sim_hold());
    EXPECT_OK(kvmem_transfer_submit(slow, ERR));
    await_calls("cuMemcpyAsync", 1);
    uint64_t layers = 99;
    EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(slow, ERR));
    EXPECT_OK(kvmem_transfer_get_layers(slow, &layers, ERR));
    CHECK_EQ(layers, 0);
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait(slow, MILLISECONDS(20), ERR));
    EXPECT_OK(kvmem_transfer_cancel(slow, ERR)); /* it has begun, and goes on */
    SIM(sim_fail("cuMemcpyAsync", 1, CUDA_ERROR_INVALID_VALUE));
    EXPECT_OK(kvmem_transfer_submit(other, ERR));
    CHECK_EQ(next_status(queue), KVMEM_STATUS_CUDA); /* whose end is told meanwhile */
    EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(slow, ERR));
    SIM(sim_go());
    EXPECT_OK(kvmem_transfer_wait(slow, PATIENCE, ERR));
    expect_moved(&pageable, &device);
}

typedef struct holding {
    const kvmem_transfer *transfer;
    CUstream stream;
    kvmem_status status;
} holding;

static void *hold_back(void *given) {
    holding *mine = given;
    mine->status = kvmem_transfer_wait_on_stream(mine->transfer, 0, mine->stream, NULL);
    return NULL;
}

/* A stream can wait for what the driver has, so this is waited for, and by nobody else. */
TEST(a_stream_waits_for_a_run_that_is_starting) {
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    SIM(sim_reset());
    RETAIN_DEVICE(0);
    OPENED(side, pageable, PLACE_SYSTEM, 0, &config, NULL, 1);
    OPENED(side, device, PLACE_DEVICE, 0, &config, NULL, 2);
    kvmem_transfer *slow = create(&device, &pageable, KVMEM_PATH_CUDA_COPY, NULL);
    holding holding = {.transfer = slow};
    CU_ON(0, cuStreamCreate(&holding.stream, CU_STREAM_NON_BLOCKING));
    SIM(sim_reset());
    SIM(sim_hold());
    EXPECT_OK(kvmem_transfer_submit(slow, ERR));
    await_calls("cuMemcpyAsync", 1);
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, hold_back, &holding), 0);
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait(slow, MILLISECONDS(20), ERR));
    CHECK_EQ(SIM(sim_calls("cuStreamWaitEvent")), 0);
    SIM(sim_go());
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(holding.status, KVMEM_STATUS_OK);
    EXPECT_OK(kvmem_transfer_wait(slow, PATIENCE, ERR));
    expect_moved(&pageable, &device);
    CALL(kvmem_transfer_destroy(slow));
    CU_ON(0, cuStreamDestroy_v2(holding.stream));
}

/* Two staged copies to the host, of which the second waits for the staging memory of the first. */
TEST(staged_copies_keep_only_their_like) {
    enum { FIRST, SECOND, OTHER_WAY, KERNEL, NUM_RUNS };
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    side device[2];
    side host[NUM_RUNS];
    kvmem_transfer *runs[NUM_RUNS];
    SIM(sim_reset());
    for (size_t i = 0; i < NUM(device); i++) {
        side_open(&device[i], PLACE_DEVICE, 0, &config, NULL, (uint32_t)i);
    }
    for (size_t i = 0; i < NUM(host); i++) {
        side_open(&host[i], PLACE_PINNED, 0, &config, NULL, (uint32_t)(10 + i));
    }
    runs[FIRST] = create(&device[0], &host[FIRST], KVMEM_PATH_CUDA_STAGED, NULL);
    runs[SECOND] = create(&device[0], &host[SECOND], KVMEM_PATH_CUDA_STAGED, NULL);
    runs[OTHER_WAY] = create(&host[OTHER_WAY], &device[1], KVMEM_PATH_CUDA_STAGED, NULL);
    runs[KERNEL] = create(&device[0], &host[KERNEL], KVMEM_PATH_CUDA_KERNEL, NULL);
    SIM(sim_reset());
    SIM(sim_hold());
    EXPECT_OK(kvmem_transfer_submit(runs[FIRST], ERR));
    await_calls("cuLaunchKernel", 1);
    EXPECT_OK(kvmem_transfer_submit(runs[SECOND], ERR));
    EXPECT_OK(kvmem_transfer_submit(runs[KERNEL], ERR));
    await_calls("cuLaunchKernel", 2);
    EXPECT_OK(kvmem_transfer_submit(runs[OTHER_WAY], ERR));
    await_calls("cuLaunchKernel", 3);
    EXPECT_OK(kvmem_transfer_cancel(runs[SECOND], ERR)); /* which has not begun */
    EXPECT(KVMEM_STATUS_CANCELLED, kvmem_transfer_wait(runs[SECOND], PATIENCE, ERR));
    EXPECT_OK(kvmem_transfer_submit(runs[SECOND], ERR));
    SIM(sim_go());
    for (size_t i = 0; i < NUM(runs); i++) {
        EXPECT_OK(kvmem_transfer_wait(runs[i], PATIENCE, ERR));
        CALL(kvmem_transfer_destroy(runs[i]));
    }
    expect_moved(&host[FIRST], &device[0]);
    expect_moved(&host[SECOND], &device[0]);
    expect_moved(&host[KERNEL], &device[0]);
    expect_moved(&device[1], &host[OTHER_WAY]);
    for (size_t i = 0; i < NUM(host); i++) {
        side_close(&host[i]);
    }
    for (size_t i = 0; i < NUM(device); i++) {
        side_close(&device[i]);
    }
}

/* More slow starts than there are threads for them: the last one has all it needs and waits for a thread. */
TEST(a_run_that_is_cancelled_before_its_start_never_starts) {
    enum { THREADS = 16, LAST = THREADS };
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    side pageable[THREADS + 1];
    kvmem_transfer *runs[THREADS + 1];
    SIM(sim_reset());
    OPENED(side, device, PLACE_DEVICE, 0, &config, NULL, 1);
    for (uint32_t i = 0; i < NUM(runs); i++) {
        side_open(&pageable[i], PLACE_SYSTEM, 0, &config, NULL, 2 + i);
        runs[i] = create(&device, &pageable[i], KVMEM_PATH_CUDA_COPY, NULL);
    }
    SIM(sim_reset());
    SIM(sim_hold());
    for (size_t i = 0; i < THREADS; i++) {
        EXPECT_OK(kvmem_transfer_submit(runs[i], ERR));
        await_calls("cuMemcpyAsync", i + 1);
    }
    EXPECT_OK(kvmem_transfer_submit(runs[LAST], ERR));
    EXPECT_OK(kvmem_transfer_cancel(runs[LAST], ERR));
    EXPECT(KVMEM_STATUS_CANCELLED, kvmem_transfer_wait(runs[LAST], PATIENCE, ERR)); /* while the others go on */
    SIM(sim_go());
    for (size_t i = 0; i < THREADS; i++) {
        EXPECT_OK(kvmem_transfer_wait(runs[i], PATIENCE, ERR));
        expect_moved(&pageable[i], &device);
    }
    side_check(&pageable[LAST]);
    RUN(runs[LAST]);
    expect_moved(&pageable[LAST], &device);
    for (size_t i = 0; i < NUM(runs); i++) {
        CALL(kvmem_transfer_destroy(runs[i]));
        side_close(&pageable[i]);
    }
}
