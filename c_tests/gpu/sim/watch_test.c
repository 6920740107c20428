// SPDX-License-Identifier: Apache-2.0
// Runs that wait, and runs that must not wait for them. A driver call that blocks delays no other caller and
// no other run. Staged copies wait only for staged copies of the same direction.
#include "control.h"
#include "gpu_flight.h"
#include "caller_context.h"

#include <pthread.h>

/* A transfer from a GPU to pageable memory: the driver call returns after the copy. */
typedef flight slow_flight;
#define slow_flight_close flight_close
static void slow_flight_open(flight *flight) {
    flight_open(flight, .from = PLACE_DEVICE, .to = PLACE_SYSTEM);
    flight_create(flight, it.transfer.method = KVMEM_METHOD_CUDA_COPY);
}

/* Submits, and waits until the driver has its first copy, which it holds back. */
static void start(const flight *slow) {
    SIM(sim_reset());
    SIM(sim_hold());
    flight_submit(slow);
    await_calls("cuMemcpyAsync", 1);
}

TEST(a_slow_start_delays_no_other_caller) {
    SIM(sim_reset());
    OPENED(slow_flight, slow);
    OPENED(flight, other, .from = PLACE_DEVICE, .to = PLACE_PINNED, .has_queue = true);
    flight_create(&other, it.transfer.method = KVMEM_METHOD_CUDA_COPY);
    start(&slow);
    EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(slow.transfer, ERR));
    const uint64_t layers = transfer_info(slow.transfer).layers_moved;
    CHECK_EQ(layers, 0);
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait(slow.transfer, MILLISECONDS(20), ERR));
    EXPECT_OK(kvmem_transfer_cancel(slow.transfer, ERR)); /* no effect, because it has begun */
    SIM(sim_fail("cuMemcpyAsync", 1, CUDA_ERROR_INVALID_VALUE));
    flight_submit(&other);
    flight_expect_completion(&other, KVMEM_STATUS_CUDA); /* reported while the slow one starts */
    EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(slow.transfer, ERR));
    SIM(sim_go());
    flight_finish(&slow);
}

typedef struct stream_wait {
    const kvmem_transfer *transfer;
    CUstream stream;
    kvmem_status status;
} stream_wait;

static void *wait_on_stream(void *argument) {
    stream_wait *mine = argument;
    mine->status = kvmem_transfer_wait_on_stream(mine->transfer, 0, mine->stream, NULL);
    return NULL;
}

/* A stream can wait only for work that the driver has, so the call blocks until the start is complete. */
TEST(a_stream_waits_for_a_run_that_is_starting) {
    SIM(sim_reset());
    OPENED(stream, stream, 0);
    OPENED(slow_flight, slow);
    start(&slow);
    pthread_t thread;
    stream_wait wait = {.transfer = slow.transfer, .stream = stream.handle};
    CHECK_EQ(pthread_create(&thread, NULL, wait_on_stream, &wait), 0);
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait(slow.transfer, MILLISECONDS(20), ERR));
    CHECK_EQ(SIM(sim_calls("cuStreamWaitEvent")), 0);
    SIM(sim_go());
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(wait.status, KVMEM_STATUS_OK);
    flight_finish(&slow);
}

/* Of two staged copies to the host, the second waits for the staging memory of the first. */
TEST(staged_copies_delay_only_staged_copies_of_the_same_direction) {
    SIM(sim_reset());
    OPENED(flight, first, .from = PLACE_DEVICE, .to = PLACE_PINNED, .seed = 10);
    OPENED(flight, second, .from = PLACE_DEVICE, .to = PLACE_PINNED, .seed = 20);
    OPENED(flight, kernel, .from = PLACE_DEVICE, .to = PLACE_PINNED, .seed = 30);
    OPENED(flight, other_way, .from = PLACE_PINNED, .to = PLACE_DEVICE, .seed = 40);
    flight_create(&first, it.transfer.method = KVMEM_METHOD_CUDA_STAGED);
    flight_create(&second, it.transfer.method = KVMEM_METHOD_CUDA_STAGED);
    flight_create(&kernel, it.transfer.method = KVMEM_METHOD_CUDA_KERNEL);
    flight_create(&other_way, it.transfer.method = KVMEM_METHOD_CUDA_STAGED);
    SIM(sim_reset());
    SIM(sim_hold());
    flight_submit(&first);
    await_calls("cuLaunchKernel", 1);
    flight_submit(&second);
    flight_submit(&kernel);
    await_calls("cuLaunchKernel", 2);
    flight_submit(&other_way);
    await_calls("cuLaunchKernel", 3);
    EXPECT_OK(kvmem_transfer_cancel(second.transfer, ERR)); /* it has not begun */
    EXPECT(KVMEM_STATUS_CANCELLED, kvmem_transfer_wait(second.transfer, PATIENCE, ERR));
    flight_submit(&second);
    SIM(sim_go());
    flight_finish(&first);
    flight_finish(&second);
    flight_finish(&other_way);
    flight_finish(&kernel);
}

/* The thread that starts a run when its staging memory is free allocates more if the run needs more, which the driver may delay. */
TEST(staging_memory_that_is_allocated_for_a_waiting_run_delays_no_other_gpu) {
    SIM(sim_reset());
    OPENED(flight, small, .from = PLACE_DEVICE, .to = PLACE_PINNED, .seed = 10);
    OPENED(flight, large, .from = PLACE_DEVICE, .to = PLACE_PINNED, .seed = 20);
    OPENED(flight, other, .from = PLACE_DEVICE, .to = PLACE_PINNED, .from_device = 1, .seed = 30, .has_queue = true);
    flight_create(&other, it.transfer.method = KVMEM_METHOD_CUDA_COPY);
    flight_create(&small, it.transfer.method = KVMEM_METHOD_CUDA_STAGED, it.transfer.staging_size = 16 * 1024);
    SIM(sim_hold());
    flight_submit(&small);
    await_calls("cuLaunchKernel", 1);
    flight_create(&large, it.transfer.method = KVMEM_METHOD_CUDA_STAGED, it.transfer.staging_size = 4 * MIB);
    flight_submit(&large);
    SIM(sim_hold_call("cuMemCreate"));
    SIM(sim_go());
    AWAIT(SIM(sim_held_calls()) == 1);
    flight_submit(&other);
    flight_expect_completion(&other, KVMEM_STATUS_OK);
    SIM(sim_go_calls());
    flight_finish(&large);
    flight_finish(&small);
}

/* More slow starts than threads: the last run has all its resources and waits for a thread. */
TEST(a_run_that_is_cancelled_before_its_start_never_starts) {
    enum { THREADS = 16, LAST = THREADS };
    flight runs[THREADS + 1];
    SIM(sim_reset());
    for (size_t i = 0; i < NUM(runs); i++) slow_flight_open(&runs[i]);
    SIM(sim_reset());
    SIM(sim_hold());
    for (size_t i = 0; i < THREADS; i++) {
        flight_submit(&runs[i]);
        await_calls("cuMemcpyAsync", i + 1);
    }
    flight_submit(&runs[LAST]);
    EXPECT_OK(kvmem_transfer_cancel(runs[LAST].transfer, ERR));
    EXPECT(KVMEM_STATUS_CANCELLED, kvmem_transfer_wait(runs[LAST].transfer, PATIENCE, ERR));
    SIM(sim_go());
    for (size_t i = 0; i < THREADS; i++) flight_finish(&runs[i]);
    side_check(&runs[LAST].destination);
    flight_run(&runs[LAST]);
    for (size_t i = 0; i < NUM(runs); i++) flight_close(&runs[i]);
}
