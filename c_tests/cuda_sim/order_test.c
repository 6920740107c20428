// SPDX-License-Identifier: Apache-2.0
// The order between streams that the driver promises: by events, the legacy default stream, and graphs.
#include "driver_test.h"

#define SIZE ((size_t)4096)

typedef struct pair {
    CUstream first, second;
    CUevent event;
    CUdeviceptr source, middle, end;
} pair;

static void pair_open(pair *pair, unsigned flags) {
    open_device(0);
    CU(cuStreamCreate(&pair->first, flags));
    CU(cuStreamCreate(&pair->second, flags));
    CU(cuEventCreate(&pair->event, CU_EVENT_DISABLE_TIMING));
    pair->source = allocate_filled(SIZE, 1);
    pair->middle = allocate_filled(SIZE, 2);
    pair->end = allocate_filled(SIZE, 3);
    CU(cuCtxSynchronize());
}

static void pair_close(pair *pair) {
    CU(cuCtxSynchronize());
    CU(cuStreamDestroy_v2(pair->first));
    CU(cuStreamDestroy_v2(pair->second));
    CU(cuEventDestroy_v2(pair->event));
    CU(cuMemFree_v2(pair->source));
    CU(cuMemFree_v2(pair->middle));
    CU(cuMemFree_v2(pair->end));
    close_device(0);
}

static void fill(pair *pair, unsigned char value, CUstream stream) {
    CU(cuMemsetD8Async(pair->source, value, SIZE, stream));
    CU(cuMemcpyDtoDAsync_v2(pair->middle, pair->source, SIZE, stream));
}

static void read_pair(pair *pair, CUstream stream) {
    CU(cuMemcpyDtoDAsync_v2(pair->end, pair->middle, SIZE, stream));
}

static void expect_read(pair *pair, unsigned char value, CUstream stream) {
    CU(cuStreamSynchronize(stream));
    check_device_filled(pair->end, value, SIZE);
}

TEST(a_stream_waits_for_an_event) {
    OPENED(pair, pair, CU_STREAM_NON_BLOCKING);
    for (unsigned char value = 4; value < 8; value++) {
        fill(&pair, value, pair.first);
        CU(cuEventRecord(pair.event, pair.first));
        CU(cuStreamWaitEvent(pair.second, pair.event, 0));
        read_pair(&pair, pair.second);
        expect_read(&pair, value, pair.second);
    }
}

/* A stream waits for a record, not for the event. */
TEST(recording_an_event_again_does_not_change_a_wait) {
    OPENED(pair, pair, CU_STREAM_NON_BLOCKING);
    OWN_STREAM(third, CU_STREAM_NON_BLOCKING);
    fill(&pair, 4, pair.first);
    CU(cuEventRecord(pair.event, pair.first));
    CU(cuStreamWaitEvent(pair.second, pair.event, 0));
    CU(cuEventRecord(pair.event, third)); /* without earlier work */
    read_pair(&pair, pair.second);
    expect_read(&pair, 4, pair.second);
    /* Neither does destroying it. */
    fill(&pair, 5, pair.first);
    CU(cuEventRecord(pair.event, pair.first));
    CU(cuStreamWaitEvent(pair.second, pair.event, 0));
    CU(cuEventDestroy_v2(pair.event));
    read_pair(&pair, pair.second);
    expect_read(&pair, 5, pair.second);
    CU(cuEventCreate(&pair.event, CU_EVENT_DISABLE_TIMING));
}

TEST(an_event_is_waited_for_through_another_stream) {
    OPENED(pair, pair, CU_STREAM_NON_BLOCKING);
    CU_GET(CUstream, third, cuStreamCreate(&third, CU_STREAM_NON_BLOCKING));
    OWN_EVENT(next, CU_EVENT_DISABLE_TIMING);
    fill(&pair, 4, pair.first);
    CU(cuEventRecord(pair.event, pair.first));
    CU(cuStreamWaitEvent(third, pair.event, 0));
    CU(cuEventRecord(next, third));
    CU(cuStreamWaitEvent(pair.second, next, 0));
    read_pair(&pair, pair.second);
    CU(cuStreamDestroy_v2(third)); /* its work still runs */
    expect_read(&pair, 4, pair.second);
}

TEST(synchronising_an_event_waits_for_the_work_before_it) {
    OPENED(pair, pair, CU_STREAM_NON_BLOCKING);
    fill(&pair, 4, pair.first);
    read_pair(&pair, pair.first);
    CU(cuEventRecord(pair.event, pair.first));
    CU(cuEventSynchronize(pair.event));
    check_device_filled(pair.end, 4, SIZE);
}

TEST(streams_of_two_devices_wait_for_each_other) {
    OPENED(pair, pair, CU_STREAM_NON_BLOCKING);
    CU_GET(CUcontext, other, cuDevicePrimaryCtxRetain(&other, 1));
    CU(cuCtxPushCurrent_v2(other));
    CU_GET(CUstream, far, cuStreamCreate(&far, CU_STREAM_NON_BLOCKING));
    CU(cuCtxPopCurrent_v2(NULL));
    fill(&pair, 4, pair.first);
    CU(cuEventRecord(pair.event, pair.first));
    CU(cuStreamWaitEvent(far, pair.event, 0));
    CU(cuStreamSynchronize(far));
    read_pair(&pair, pair.second);
    expect_read(&pair, 4, pair.second);
    CU(cuStreamDestroy_v2(far));
    CU(cuDevicePrimaryCtxRelease_v2(1));
}

TEST(blocking_streams_and_the_default_stream_wait_for_each_other) {
    OPENED(pair, pair, 0);
    fill(&pair, 4, pair.first);
    read_pair(&pair, NULL);
    expect_read(&pair, 4, NULL);
    fill(&pair, 5, NULL);
    read_pair(&pair, pair.second);
    expect_read(&pair, 5, pair.second);
    fill(&pair, 6, CU_STREAM_PER_THREAD);
    read_pair(&pair, CU_STREAM_LEGACY);
    expect_read(&pair, 6, NULL);
    fill(&pair, 7, pair.first);
    CU(cuMemsetD8_v2(pair.end, 0, 1)); /* on the default stream, which orders the two others */
    read_pair(&pair, pair.second);
    expect_read(&pair, 7, pair.second);
    fill(&pair, 8, pair.first);
    read_pair(&pair, pair.first);
    check_device_filled(pair.end, 8, SIZE); /* a synchronous copy runs on the default stream */
}

TEST(the_default_stream_waits_for_events) {
    OPENED(pair, pair, CU_STREAM_NON_BLOCKING);
    fill(&pair, 4, pair.first);
    CU(cuEventRecord(pair.event, pair.first));
    CU(cuStreamWaitEvent(NULL, pair.event, 0));
    read_pair(&pair, NULL);
    expect_read(&pair, 4, NULL);
    fill(&pair, 5, NULL);
    CU(cuEventRecord(pair.event, NULL));
    CU(cuStreamWaitEvent(pair.second, pair.event, 0));
    read_pair(&pair, pair.second);
    expect_read(&pair, 5, pair.second);
}

TEST(launches_of_a_graph_run_in_order) {
    OPENED(pair, pair, CU_STREAM_NON_BLOCKING);
    CU(cuStreamBeginCapture_v2(pair.first, CU_STREAM_CAPTURE_MODE_RELAXED));
    CU(cuMemcpyDtoDAsync_v2(pair.end, pair.middle, SIZE, pair.first));
    CU(cuMemcpyDtoDAsync_v2(pair.middle, pair.source, SIZE, pair.first));
    CU_GET(CUgraph, graph, cuStreamEndCapture(pair.first, &graph));
    CU_GET(CUgraphExec, executable, cuGraphInstantiateWithFlags(&executable, graph, 0));
    CU(cuGraphDestroy(graph));
    CU(cuGraphLaunch(executable, pair.first));
    CU(cuGraphLaunch(executable, pair.second));
    expect_read(&pair, 1, pair.second); /* the value that the first launch copied to the middle */
    CU(cuGraphExecDestroy(executable));
}
