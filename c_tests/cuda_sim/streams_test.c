// SPDX-License-Identifier: Apache-2.0
// Streams and events: created, queried, synchronised, destroyed; the contexts they need.
#include "driver_test.h"

TEST(streams_are_created_and_destroyed) {
    CUstream stream = NULL;
    OPEN_DEVICE(0);
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamCreate(&stream, 0x100));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamCreate(NULL, 0));
    CU(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -100)); /* clamped */
    CU(cuStreamQuery(stream));
    CU(cuStreamSynchronize(stream));
    CU(cuStreamDestroy_v2(stream));
    CU_EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2(NULL));
    CU_EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2(CU_STREAM_PER_THREAD));
}

TEST(default_streams_belong_to_the_current_context) {
    const CUstream special[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
    OPEN_DEVICE(0);
    for (size_t i = 0; i < NUM(special); i++) {
        CU(cuStreamQuery(special[i]));
        CU(cuStreamSynchronize(special[i]));
    }
    CU_GET(CUcontext, popped, cuCtxPopCurrent_v2(&popped));
    CU_EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuStreamQuery(NULL));
    CU(cuCtxPushCurrent_v2(popped));
}

TEST(events_are_created_and_destroyed) {
    CUevent event = NULL;
    OPEN_DEVICE(0);
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&event, 0x100));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&event, CU_EVENT_INTERPROCESS));
    CU(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    CU(cuEventDestroy_v2(event));
    CU_EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy_v2(NULL));
    CU_EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(NULL));
    CU_EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(NULL, NULL));
    CU_EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamWaitEvent(NULL, NULL, 0));
}

TEST(a_recorded_event_completes_with_its_stream) {
    OPEN_DEVICE(0);
    OWN_STREAM(stream, CU_STREAM_NON_BLOCKING);
    OWN_EVENT(event, CU_EVENT_DISABLE_TIMING);
    CU(cuEventQuery(event)); /* an event that was never recorded is complete */
    CU(cuEventSynchronize(event));
    CU(cuStreamWaitEvent(stream, event, 0));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamWaitEvent(stream, event, 9));
    CU(cuEventRecord(event, stream));
    CU(cuEventSynchronize(event));
    CU(cuEventQuery(event));
}

TEST(events_measure_elapsed_time) {
    CUevent events[3];
    float milliseconds = -1;
    OPEN_DEVICE(0);
    OWN_STREAM(stream, CU_STREAM_NON_BLOCKING);
    for (size_t i = 0; i < 3; i++) CU(cuEventCreate(&events[i], i == 2 ? CU_EVENT_DISABLE_TIMING : 0));
    CU_EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&milliseconds, events[0], events[1]));
    for (size_t i = 0; i < 3; i++) CU(cuEventRecord(events[i], stream));
    CU(cuStreamSynchronize(stream));
    CU(cuEventElapsedTime(&milliseconds, events[0], events[1]));
    CHECK(milliseconds >= 0);
    CU_EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&milliseconds, events[0], events[2]));
    CU_EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&milliseconds, NULL, events[1]));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuEventElapsedTime(NULL, events[0], events[1]));
    for (size_t i = 0; i < 3; i++) CU(cuEventDestroy_v2(events[i]));
}

TEST(streams_work_with_any_current_context) {
    const CUcontext own = open_device(0);
    CU_GET(CUstream, stream, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    const CUdeviceptr address = allocate_filled(64, 1);
    CU_GET(CUcontext, other, cuDevicePrimaryCtxRetain(&other, 1));
    CU(cuCtxPushCurrent_v2(other));
    CU_GET(CUevent, event, cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CU(cuMemsetD8Async(address, 8, 64, stream));
    CU(cuStreamSynchronize(stream));
    CU_EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, stream)); /* their contexts differ */
    CU(cuCtxPopCurrent_v2(NULL));
    check_device_filled(address, 8, 64);
    CU(cuMemFree_v2(address));
    CU(cuCtxPopCurrent_v2(NULL));
    CU(cuStreamQuery(stream)); /* without a context, too */
    CU(cuStreamDestroy_v2(stream));
    CU(cuEventQuery(event));
    CU(cuEventDestroy_v2(event));
    CU(cuDevicePrimaryCtxRelease_v2(1));
    CU(cuCtxPushCurrent_v2(own));
    close_device(0);
}
