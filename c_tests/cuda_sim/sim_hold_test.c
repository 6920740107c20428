// SPDX-License-Identifier: Apache-2.0
// Work that is held back: queries, waits, order, and memory that is unmapped before the work runs.
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

/* Opens a device and holds its work back; closes the device when the scope ends. */
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
    CU(cuMemsetD8Async(address, 4, 64, stream)); /* the hold has ended */
    CU(cuStreamSynchronize(stream));
    check_device_filled(address, 4, 64);
}

/* A program that asks rarely waits no longer for many tasks than for few. */
TEST(few_queries_complete_many_tasks) {
    HELD_DEVICE(own);
    enum { TASKS = 100000, QUERIES = 200 };
    sim_go();
    for (size_t i = 0; i < TASKS; i++) CU(cuMemsetD8Async(address, (unsigned char)i, 64, stream));
    int queries = 1;
    while (cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) queries++;
    CHECK(queries > 2 && queries < QUERIES);
    check_device_filled(address, (unsigned char)(TASKS - 1), 64);
}

typedef struct waiter {
    CUresult (*wait)(void);
    CUcontext context;
    CUresult result;
    bool was_ready;
} waiter;

static CUresult wait_for_stream(void) { return cuStreamSynchronize(stream); }

static CUresult wait_for_event(void) { return cuEventSynchronize(event); }

/* A thread that waits, and queries afterwards whether the work is complete. */
static void *wait_on_thread(void *argument) {
    waiter *waiter = argument;
    cuCtxPushCurrent_v2(waiter->context);
    waiter->result = waiter->wait();
    waiter->was_ready = cuStreamQuery(stream) == CUDA_SUCCESS;
    cuCtxPopCurrent_v2(NULL);
    return NULL;
}

TEST(waiting_blocks_until_the_hold_ends) {
    CUresult (*const waits[])(void) = {wait_for_stream, wait_for_event, cuCtxSynchronize};
    for (size_t i = 0; i < NUM(waits); i++) {
        HELD_DEVICE(own);
        waiter waiter = {.wait = waits[i], .context = own};
        threads thread;
        CU(cuMemsetD8Async(address, 2, 64, stream));
        CU(cuEventRecord(event, stream));
        threads_start(&thread, 1, wait_on_thread, &waiter, 0);
        CU_EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
        sim_go();
        threads_join(&thread);
        CHECK_EQ(waiter.result, CUDA_SUCCESS);
        CHECK(waiter.was_ready);
    }
}

TEST(work_on_unmapped_memory_fails_with_illegal_address) {
    HELD_DEVICE(own);
    const CUdeviceptr mapped = map_fresh(0, GRANULE);
    CU(cuMemsetD8Async(mapped, 2, 64, stream));
    unmap_and_free(mapped, GRANULE); /* does not wait for the work */
    sim_go();
    CU_EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
}

TEST(destroyed_streams_finish_their_work) {
    HELD_DEVICE(own);
    CU_GET(CUstream, ended, cuStreamCreate(&ended, CU_STREAM_NON_BLOCKING));
    CU(cuMemsetD8Async(address, 5, 64, ended));
    CU(cuStreamDestroy_v2(ended));
    sim_go();
    check_device_filled(address, 5, 64);
}

TEST(sim_reset_ends_the_hold) {
    HELD_DEVICE(own);
    CU(cuMemsetD8Async(address, 6, 64, stream));
    sim_reset();
    CU(cuStreamQuery(stream));
    check_device_filled(address, 6, 64);
}

/* An event of a context is complete when all earlier work of all streams is. */
TEST(the_work_of_a_context_is_recorded) {
    HELD_DEVICE(own);
    CU(cuMemsetD8Async(address, 2, 64, stream));
    CU(cuCtxRecordEvent(own, event));
    CU_EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    sim_go();
    CU(cuEventQuery(event));
    sim_hold();
    CU(cuCtxRecordEvent(own, event));
    CU(cuMemsetD8Async(address, 3, 64, stream));
    CU(cuEventQuery(event)); /* later work does not delay it */
    sim_go();
}

static CUresult load_module(void) {
    CUmodule module = NULL;
    const CUresult result = cuModuleLoadData(&module, ".version 7.0\n.target sm_70\n");
    return result == CUDA_SUCCESS ? cuModuleUnload(module) : result;
}

TEST(compiling_waits_for_no_work) {
    HELD_DEVICE(own);
    static const char ptx[] = ".version 7.0\n.target sm_70\n";
    CU(cuMemsetD8Async(address, 2, 64, stream));
    CU_GET(CUlinkState, linker, cuLinkCreate_v2(0, NULL, NULL, &linker));
    CU(cuLinkAddData_v2(linker, CU_JIT_INPUT_PTX, (void *)(uintptr_t)ptx, sizeof(ptx), "test", 0, NULL, NULL));
    void *code = NULL;
    size_t size = 0;
    CU(cuLinkComplete(linker, &code, &size));
    CU(cuLinkDestroy(linker));
    CU_EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    sim_go();
}

TEST(loading_a_module_waits_for_all_work) {
    HELD_DEVICE(own);
    waiter waiter = {.wait = load_module, .context = own};
    threads thread;
    CU(cuMemsetD8Async(address, 2, 64, stream));
    threads_start(&thread, 1, wait_on_thread, &waiter, 0);
    CU_EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    sim_go();
    threads_join(&thread);
    CHECK_EQ(waiter.result, CUDA_SUCCESS);
    CHECK(waiter.was_ready);
}
