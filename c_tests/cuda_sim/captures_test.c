// SPDX-License-Identifier: Apache-2.0
// Calls that fail while a stream is captured, and the state of the capture afterwards.
#include "driver_test.h"

#include <pthread.h>

typedef CUresult (*action)(void);

static CUstream captured, other;

static CUresult query(void) { return cuStreamQuery(other); }
static CUresult allocate(void) {
    CUdeviceptr address = 0;
    const CUresult result = cuMemAlloc_v2(&address, 64);
    return result == CUDA_SUCCESS ? cuMemFree_v2(address) : result;
}
static CUresult synchronize(void) { return cuCtxSynchronize(); }
static CUresult create(void) {
    CUevent event = NULL;
    const CUresult result = cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    return result == CUDA_SUCCESS ? cuEventDestroy_v2(event) : result;
}
static CUresult relaxed(action then) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CU(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    const CUresult result = then();
    CU(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK_EQ(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    return result;
}
static CUresult record_context(void) {
    CU_GET(CUcontext, current, cuCtxGetCurrent(&current));
    CU_GET(CUevent, event, cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    const CUresult result = cuCtxRecordEvent(current, event);
    CU(cuEventDestroy_v2(event));
    return result;
}
static CUresult record_context_relaxed(void) { return relaxed(record_context); }
static CUresult query_relaxed(void) { return relaxed(query); }
static CUresult allocate_relaxed(void) { return relaxed(allocate); }
static CUresult synchronize_relaxed(void) { return relaxed(synchronize); }

typedef struct thread_call {
    CUcontext context;
    action action;
    CUresult result;
} thread_call;

static void *make_call(void *argument) {
    thread_call *call = argument;
    CU(cuCtxPushCurrent_v2(call->context));
    call->result = call->action();
    CU_GET(CUcontext, popped, cuCtxPopCurrent_v2(&popped));
    return NULL;
}

static CUresult on_another_thread(CUcontext context, action action) {
    thread_call call = {context, action, CUDA_ERROR_UNKNOWN};
    threads_run(1, make_call, &call, 0);
    return call.result;
}

/* Checks the result of the call, and that the capture is invalidated exactly if the call is forbidden. */
static void check(CUstreamCaptureMode mode, bool is_other_thread, action action, bool is_forbidden) {
    const CUcontext context = open_device(0);
    CUgraph graph = NULL;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CU(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
    CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CU(cuStreamBeginCapture_v2(captured, mode));
    CU_EXPECT(is_forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS,
              is_other_thread ? on_another_thread(context, action) : action());
    CU(cuStreamIsCapturing(captured, &status));
    CHECK_EQ(status, is_forbidden ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CU_EXPECT(is_forbidden ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS,
              cuStreamEndCapture(captured, &graph));
    CHECK((graph == NULL) == is_forbidden);
    if (graph != NULL) CU(cuGraphDestroy(graph));
    CU(cuStreamDestroy_v2(captured));
    CU(cuStreamDestroy_v2(other));
    close_device(0);
}

TEST(a_global_capture_forbids_calls_in_all_threads) {
    static const action forbidden[] = {query, allocate, synchronize};
    for (size_t i = 0; i < NUM(forbidden); i++) {
        check(CU_STREAM_CAPTURE_MODE_GLOBAL, false, forbidden[i], true);
        check(CU_STREAM_CAPTURE_MODE_GLOBAL, true, forbidden[i], true);
    }
    check(CU_STREAM_CAPTURE_MODE_GLOBAL, true, create, false);
}

TEST(a_thread_local_capture_forbids_calls_in_its_thread) {
    check(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, false, query, true);
    check(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, true, query, false);
    check(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, true, allocate, false);
}

TEST(in_relaxed_mode_only_context_synchronisation_is_forbidden) {
    check(CU_STREAM_CAPTURE_MODE_RELAXED, false, query, false);
    check(CU_STREAM_CAPTURE_MODE_RELAXED, true, allocate, false);
    check(CU_STREAM_CAPTURE_MODE_GLOBAL, false, query_relaxed, false);
    check(CU_STREAM_CAPTURE_MODE_GLOBAL, true, allocate_relaxed, false);
    check(CU_STREAM_CAPTURE_MODE_GLOBAL, true, synchronize_relaxed, true);
    check(CU_STREAM_CAPTURE_MODE_RELAXED, false, synchronize, true);
    check(CU_STREAM_CAPTURE_MODE_GLOBAL, true, record_context_relaxed, true);
    check(CU_STREAM_CAPTURE_MODE_RELAXED, false, record_context, true);
}

static CUresult status_of_legacy(void) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return cuStreamIsCapturing(CU_STREAM_LEGACY, &status);
}

/* As documented. The query does not invalidate the capture. */
TEST(the_legacy_stream_reports_captures_of_blocking_streams) {
    open_device(0);
    CUgraph graph = NULL;
    for (unsigned flags = 0; flags <= CU_STREAM_NON_BLOCKING; flags++) {
        CU(cuStreamCreate(&captured, flags));
        CU_EXPECT(CUDA_SUCCESS, status_of_legacy());
        CU(cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
        CU_EXPECT(flags == 0 ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS, status_of_legacy());
        CU(cuStreamEndCapture(captured, &graph));
        CU(cuGraphDestroy(graph));
        CU(cuStreamDestroy_v2(captured));
    }
    close_device(0);
}
