// SPDX-License-Identifier: Apache-2.0
// Contexts: the stack of a thread, the reference-counted primary context, and calls on a destroyed context.
#include "driver_test.h"

#include <pthread.h>

static CUcontext current(void) {
    CU_GET(CUcontext, context, cuCtxGetCurrent(&context));
    return context;
}

static bool is_active(CUdevice device) {
    int active = 0;
    CU_GET(unsigned, flags, cuDevicePrimaryCtxGetState(device, &flags, &active));
    return active != 0;
}

TEST(stack_pushes_pops_and_sets) {
    NOTHING_LEFT;
    CU_GET(CUcontext, first, cuDevicePrimaryCtxRetain(&first, 0));
    CU_GET(CUcontext, second, cuDevicePrimaryCtxRetain(&second, 1));
    CHECK(current() == NULL);
    CU(cuCtxPushCurrent_v2(first));
    CU(cuCtxPushCurrent_v2(second));
    CU_GET(CUdevice, device, cuCtxGetDevice(&device));
    CHECK_EQ(device, 1);
    CU(cuCtxSetCurrent(first)); /* replaces the top */
    CU(cuCtxSetCurrent(NULL));  /* pops the top */
    CHECK(current() == first);
    CU_GET(CUcontext, popped, cuCtxPopCurrent_v2(&popped));
    CHECK(popped == first);
    CHECK(current() == NULL);
    CU_EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent_v2(&popped));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuCtxPushCurrent_v2(NULL));
    CU(cuCtxSetCurrent(NULL));
    CU(cuCtxSetCurrent(second)); /* onto an empty stack */
    CU(cuCtxPopCurrent_v2(NULL));
    CU(cuDevicePrimaryCtxRelease_v2(0));
    CU(cuDevicePrimaryCtxRelease_v2(1));
}

static void *read_current(void *context) {
    *(CUcontext *)context = current();
    return NULL;
}

TEST(each_thread_has_its_own_stack) {
    CUcontext of_other_thread = (CUcontext)&of_other_thread;
    OPEN_DEVICE(0);
    threads_run(1, read_current, &of_other_thread, 0);
    CHECK(of_other_thread == NULL);
}

TEST(memory_needs_a_context) {
    CUdeviceptr address = 0;
    void *host = NULL;
    size_t bytes = 0;
    CUstream stream = NULL;
    CUevent event = NULL;
    CUdevice device = 0;
    unsigned char local[64];
    CU(cuInit(0));
    CU_EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetDevice(&device));
    CU_EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxSynchronize());
    CU_EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&address, 1));
    CU_EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuMemGetInfo_v2(&bytes, &bytes));
    CU_EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuMemGetAddressRange_v2(&address, &bytes, ADDRESS(local)));
    CU_EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuMemHostAlloc(&host, 1, 0));
    CU_EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuMemHostRegister_v2(local, sizeof(local), 0));
    CU_EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuMemcpy(0, 0, 0));
    CU_EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuStreamCreate(&stream, 0));
    CU_EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuStreamSynchronize(NULL));
    CU_EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuEventCreate(&event, 0));
    /* Functions that free do not need one. */
    CU(cuMemFree_v2(0));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(ADDRESS(local)));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(local));
    CU_EXPECT(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(local));
}

TEST(vmm_needs_no_context) {
    NOTHING_LEFT;
    const CUdeviceptr address = map_fresh(0, GRANULE);
    CHECK(!is_active(0));
    unmap_and_free(address, GRANULE);
}

TEST(primary_context_is_reference_counted) {
    CU(cuInit(0));
    CU_EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(0));
    CU_GET(CUcontext, first, cuDevicePrimaryCtxRetain(&first, 0));
    CU_GET(CUcontext, again, cuDevicePrimaryCtxRetain(&again, 0));
    CHECK(first == again);
    CU_EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(first));
    CU(cuDevicePrimaryCtxRelease_v2(0));
    CHECK(is_active(0) && !is_active(1));
    CU(cuDevicePrimaryCtxRelease_v2(0));
    CHECK(!is_active(0));
    CU_EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(0));
    CU(cuDevicePrimaryCtxRetain(&again, 0));
    CHECK(first == again);
    CU(cuDevicePrimaryCtxRelease_v2(0));
}

/* Checks that the context is current and that every call except cuCtxGetDevice fails. */
static void expect_destroyed(CUcontext context, CUdevice device) {
    CUdeviceptr address = 0;
    size_t bytes = 0;
    CHECK(current() == context);
    CU_GET(CUdevice, found, cuCtxGetDevice(&found));
    CHECK_EQ(found, device);
    CU_EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSynchronize());
    CU_EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc_v2(&address, 1));
    CU_EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemFree_v2(0));
    CU_EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemGetInfo_v2(&bytes, &bytes));
}

TEST(released_primary_context_frees_its_memory) {
    const CUcontext context = open_device(0);
    const CUdeviceptr address = allocate_filled(4096, 1);
    CU(cuDevicePrimaryCtxRelease_v2(0));
    check_unknown(address);
    expect_destroyed(context, 0);
    CU(cuCtxPopCurrent_v2(NULL));
    check_nothing_left();
}

TEST(reset_primary_context_is_destroyed_until_retained) {
    const CUcontext context = open_device(0);
    const CUdeviceptr mapped = map_fresh(0, GRANULE);
    CU(cuMemsetD8_v2(mapped, 7, GRANULE));
    CU(cuDevicePrimaryCtxReset_v2(0));
    CHECK(!is_active(0));
    expect_destroyed(context, 0);
    CU_GET(CUcontext, again, cuDevicePrimaryCtxRetain(&again, 0));
    CHECK(again == context);
    check_device_filled(mapped, 7, GRANULE); /* mappings belong to no context */
    unmap_and_free(mapped, GRANULE);
    CU(cuDevicePrimaryCtxRelease_v2(0));
    close_device(0);
}

static uint64_t id_of(CUcontext context) {
    unsigned long long id = 0;
    CU(cuCtxGetId(context, &id));
    return id;
}

/* A primary context that is created again has the same handle and another id. */
TEST(every_context_has_a_unique_id) {
    unsigned long long id = 0;
    const CUcontext primary = open_device(0);
    const uint64_t first = id_of(primary);
    CHECK_EQ(id_of(NULL), first); /* the current one */
    CU_GET(CUcontext, again, cuDevicePrimaryCtxRetain(&again, 0));
    CHECK_EQ(id_of(again), first);
    CU(cuDevicePrimaryCtxReset_v2(0));
    CU_EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxGetId(primary, &id));
    CU(cuDevicePrimaryCtxRetain(&again, 0));
    CHECK(again == primary);
    CHECK(id_of(primary) != first);
    CU_GET(CUcontext, created, cuCtxCreate_v2(&created, 0, 0));
    CHECK(id_of(created) != id_of(primary));
    CU(cuCtxDestroy_v2(created));
    CU(cuDevicePrimaryCtxRelease_v2(0)); /* references from before the reset still count */
    CHECK(is_active(0));
    CU(cuDevicePrimaryCtxRelease_v2(0));
    CHECK(is_active(0));
    close_device(0);
    CU_EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetId(NULL, &id));
}

TEST(created_context_is_current_until_destroyed) {
    CUcontext created = NULL;
    const CUcontext primary = open_device(0);
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuCtxCreate_v2(&created, 0x1000, 0));
    CU(cuCtxCreate_v2(&created, 0, 1));
    CHECK(current() == created);
    CU(cuCtxDestroy_v2(created));
    CHECK(current() == primary); /* it was popped */
    CU(cuCtxCreate_v2(&created, 0, 1));
    CU(cuCtxPushCurrent_v2(primary));
    CU(cuCtxDestroy_v2(created));
    CHECK(current() == primary);
    CU(cuCtxPopCurrent_v2(NULL));
    expect_destroyed(created, 1); /* it was not on top, so it was not popped */
    CU(cuCtxPopCurrent_v2(NULL));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuCtxDestroy_v2(NULL));
    close_device(0);
}
