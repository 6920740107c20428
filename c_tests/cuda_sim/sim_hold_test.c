// SPDX-License-Identifier: Apache-2.0
// Work that is held back: asked for, waited for, done in order, and too late for memory that has gone.
#include "cuda_sim.h"
#include "driver_test.h"

static CUstream stream;
static CUevent event;
static CUdeviceptr address;

static CUcontext set_up(void) {
    const CUcontext context = open_device(0);
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    address = allocate_filled(64, 1);
    sim_hold();
    return context;
}

static void tear_down(const CUcontext *context) {
    (void)context;
    CU(cuEventDestroy_v2(event));
    CU(cuStreamDestroy_v2(stream));
    CU(cuMemFree_v2(address));
    close_device(0);
}

/* Work of a device is held back; the device is closed when the scope ends. */
#define HELD_DEVICE(context) CLEANUP(tear_down) const CUcontext context = set_up()

TEST(held_work_is_not_ready) {
    HELD_DEVICE(own);
    CU(cuMemsetD8Async(address, 2, 64, stream));
    CU(cuEventRecord(event, stream));
    CU(cuMemsetD8Async(address, 3, 32, stream));
    CU_EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    CU_EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    check_device_filled(address, 1, 64); /* a synchronous copy does not wait for this stream */
    sim_go();
    CU(cuStreamQuery(stream));
    CU(cuEventQuery(event));
    check_device_filled(address, 3, 32); /* in order */
    check_device_filled(address + 32, 2, 32);
    CU(cuMemsetD8Async(address, 4, 64, stream)); /* held back no more */
    CU(cuStreamSynchronize(stream));
    check_device_filled(address, 4, 64);
}

typedef struct waiter {
    CUresult (*wait)(void);
    CUcontext context;
    CUresult result;
    bool was_ready;
} waiter;

static CUresult wait_for_stream(void) { return cuStreamSynchronize(stream); }

static CUresult wait_for_event(void) { return cuEventSynchronize(event); }

/* Waits on a thread of its own, and looks whether the work was done when it came back. */
static void *wait_elsewhere(void *argument) {
    waiter *waiter = argument;
    cuCtxPushCurrent_v2(waiter->context);
    waiter->result = waiter->wait();
    waiter->was_ready = cuStreamQuery(stream) == CUDA_SUCCESS;
    cuCtxPopCurrent_v2(NULL);
    return NULL;
}

TEST(waiting_blocks_until_the_work_goes) {
    CUresult (*const ways[])(void) = {wait_for_stream, wait_for_event, cuCtxSynchronize};
    for (size_t i = 0; i < NUM(ways); i++) {
        HELD_DEVICE(own);
        waiter waiter = {.wait = ways[i], .context = own};
        threads thread;
        CU(cuMemsetD8Async(address, 2, 64, stream));
        CU(cuEventRecord(event, stream));
        threads_start(&thread, 1, wait_elsewhere, &waiter, 0);
        CU_EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
        sim_go();
        threads_join(&thread);
        CHECK_EQ(waiter.result, CUDA_SUCCESS);
        CHECK(waiter.was_ready);
    }
}

TEST(work_that_comes_too_late_is_an_illegal_address) {
    HELD_DEVICE(own);
    const CUdeviceptr mapped = map_fresh(0, GRANULE);
    CU(cuMemsetD8Async(mapped, 2, 64, stream));
    unmap_and_free(mapped, GRANULE); /* waits for nothing */
    sim_go();
    CU_EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
}

TEST(destroyed_streams_finish_their_work) {
    HELD_DEVICE(own);
    CUstream ended = NULL;
    CU(cuStreamCreate(&ended, CU_STREAM_NON_BLOCKING));
    CU(cuMemsetD8Async(address, 5, 64, ended));
    CU(cuStreamDestroy_v2(ended));
    sim_go();
    check_device_filled(address, 5, 64);
}

TEST(reset_lets_work_go) {
    HELD_DEVICE(own);
    CU(cuMemsetD8Async(address, 6, 64, stream));
    sim_reset();
    CU(cuStreamQuery(stream));
    check_device_filled(address, 6, 64);
}
