// SPDX-License-Identifier: Apache-2.0
// The stand-in reverses the order of work that the driver does not order, so that tests detect missing waits.
#include "cuda_sim.h"
#include "driver_test.h"

#define SIZE ((size_t)64)
#define NUM_STREAMS 8

/* Memory that each stream writes its number to: afterwards it contains the number that was written last. */
static CUdeviceptr board;
static CUstream streams[NUM_STREAMS];
static CUevent event;

static unsigned set_up(unsigned flags) {
    sim_reset();
    sim_set_order(0);
    open_device(0);
    for (size_t i = 0; i < NUM_STREAMS; i++) CU(cuStreamCreate(&streams[i], flags));
    CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    board = allocate_filled(SIZE, 0xff);
    CU(cuCtxSynchronize());
    return flags;
}

static void tear_down(const unsigned *flags) {
    (void)flags;
    sim_reset();
    for (size_t i = 0; i < NUM_STREAMS; i++) CU(cuStreamDestroy_v2(streams[i]));
    CU(cuEventDestroy_v2(event));
    CU(cuMemFree_v2(board));
    close_device(0);
}

/* Creates the board, and streams with these flags, until the scope ends. */
#define STREAMS(flags) CLEANUP(tear_down) const unsigned flags_of_streams = set_up(flags)

static void write_value(unsigned char value, CUstream stream) {
    CU(cuMemsetD8Async(board, value, SIZE, stream));
}

/* Returns the value on the board after all work. */
static unsigned char last(void) {
    unsigned char read[SIZE];
    CU(cuCtxSynchronize());
    CU(cuMemcpyDtoH_v2(read, board, SIZE));
    CHECK_FILLED(read, read[0], SIZE);
    return read[0];
}

TEST(without_an_event_the_last_work_runs_first) {
    STREAMS(CU_STREAM_NON_BLOCKING);
    for (int held = 0; held < 2; held++) {
        if (held) sim_hold();
        for (unsigned char i = 0; i < NUM_STREAMS; i++) write_value(i, streams[i]);
        if (held) sim_go();
        CHECK_EQ(last(), 0);
    }
}

TEST(with_an_event_work_runs_in_order) {
    STREAMS(CU_STREAM_NON_BLOCKING);
    for (int held = 0; held < 2; held++) {
        if (held) sim_hold();
        write_value(1, streams[1]);
        CU(cuEventRecord(event, streams[1]));
        CU(cuStreamWaitEvent(streams[2], event, 0));
        CU(cuEventRecord(event, streams[3])); /* does not change the wait */
        write_value(2, streams[2]);
        if (held) sim_go();
        CHECK_EQ(last(), 2);
    }
}

/* Only work after the wait waits, and only for work before the record. */
TEST(an_event_orders_nothing_else) {
    STREAMS(CU_STREAM_NON_BLOCKING);
    CU(cuEventRecord(event, streams[1]));
    write_value(1, streams[1]);
    CU(cuStreamWaitEvent(streams[2], event, 0));
    write_value(2, streams[2]);
    CHECK_EQ(last(), 1);
    write_value(3, streams[1]);
    CU(cuEventRecord(event, streams[1]));
    write_value(4, streams[2]);
    CU(cuStreamWaitEvent(streams[2], event, 0));
    CHECK_EQ(last(), 3);
    CU(cuStreamWaitEvent(streams[2], event, 0)); /* for complete work: delays nothing */
}

TEST(a_wait_before_the_first_record_has_no_effect) {
    STREAMS(CU_STREAM_NON_BLOCKING);
    CU(cuStreamWaitEvent(streams[2], event, 0));
    write_value(1, streams[1]);
    CU(cuEventRecord(event, streams[1]));
    write_value(2, streams[2]);
    CHECK_EQ(last(), 1);
}

TEST(non_blocking_streams_and_the_default_stream_are_not_ordered) {
    STREAMS(CU_STREAM_NON_BLOCKING);
    write_value(1, NULL);
    write_value(2, streams[2]);
    CHECK_EQ(last(), 1);
    write_value(3, streams[3]);
    write_value(4, NULL);
    CHECK_EQ(last(), 3);
    write_value(5, streams[3]);
    CU(cuStreamSynchronize(NULL)); /* does not wait for the non-blocking stream */
    CU(cuMemsetD8_v2(board, 6, SIZE));
    CHECK_EQ(last(), 5);
}

TEST(blocking_streams_are_ordered_only_by_the_default_stream) {
    STREAMS(0);
    write_value(1, streams[1]);
    write_value(2, streams[2]);
    CHECK_EQ(last(), 1);
    write_value(3, streams[3]);
    write_value(4, NULL);
    write_value(5, streams[5]);
    CHECK_EQ(last(), 5);
}

TEST(waiting_for_a_stream_does_not_wait_for_others) {
    STREAMS(CU_STREAM_NON_BLOCKING);
    CU_GET(CUcontext, other, cuDevicePrimaryCtxRetain(&other, 1));
    CU(cuCtxPushCurrent_v2(other));
    CU_GET(CUstream, far, cuStreamCreate(&far, CU_STREAM_NON_BLOCKING));
    CU(cuCtxPopCurrent_v2(NULL));
    sim_hold();
    write_value(1, streams[1]);
    CU(cuStreamSynchronize(streams[2]));
    CU(cuStreamQuery(streams[2]));
    CU_EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(streams[1]));
    CU(cuStreamQuery(far));
    CU(cuCtxPushCurrent_v2(other));
    CU(cuCtxSynchronize()); /* of the other device */
    CU(cuCtxPopCurrent_v2(NULL));
    sim_go();
    CU(cuStreamDestroy_v2(far));
    CU(cuDevicePrimaryCtxRelease_v2(1));
}

/* Each query runs some tasks. */
TEST(queries_are_enough_for_work_to_complete) {
    STREAMS(CU_STREAM_NON_BLOCKING);
    for (unsigned char i = 0; i < 3 * 16; i++) write_value(i, streams[1]);
    CU(cuEventRecord(event, streams[1]));
    CU_EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(streams[1]));
    CU_EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    CU(cuStreamQuery(streams[2])); /* runs work of all streams */
    CU(cuEventQuery(event));
}

TEST(a_seed_determines_the_random_order) {
    unsigned char first[16];
    STREAMS(CU_STREAM_NON_BLOCKING);
    bool differs = false;
    for (int round = 0; round < 3; round++) {
        sim_set_order(round < 2 ? 7 : 8);
        for (size_t i = 0; i < NUM(first); i++) {
            for (unsigned char value = 0; value < NUM_STREAMS; value++) write_value(value, streams[value]);
            const unsigned char was_last = last();
            CHECK(round != 1 || was_last == first[i]);
            differs = differs || (i > 0 && was_last != first[i - 1]);
            first[i] = was_last;
        }
    }
    CHECK(differs);
    /* Work that is ordered runs in order. */
    write_value(1, streams[1]);
    CU(cuEventRecord(event, streams[1]));
    CU(cuStreamWaitEvent(streams[2], event, 0));
    write_value(2, streams[2]);
    CHECK_EQ(last(), 2);
}

/* The driver's synchronous functions return before copies inside a device, and fills of device memory, are
   complete. */
TEST(synchronous_copies_inside_a_device_do_not_wait) {
    STREAMS(CU_STREAM_NON_BLOCKING);
    const CUdeviceptr source = allocate_filled(SIZE, 9);
    sim_hold();
    CU(cuMemcpyDtoD_v2(board, source, SIZE));
    CU(cuMemsetD8_v2(board, 8, SIZE / 2));
    CU_EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
    sim_go();
    check_device_filled(board, 8, SIZE / 2);
    check_device_filled(board + SIZE / 2, 9, SIZE / 2);
    CU(cuMemcpyDtoD_v2(board, source, SIZE));
    write_value(7, streams[1]);
    CHECK_EQ(last(), 9);
    CU(cuMemFree_v2(source));
}

TEST(copies_from_pageable_memory_read_the_source_before_they_return) {
    unsigned char bytes[SIZE];
    STREAMS(CU_STREAM_NON_BLOCKING);
    memset(bytes, 1, SIZE);
    CU(cuMemcpyHtoD_v2(board, bytes, SIZE));
    memset(bytes, 2, SIZE);
    write_value(3, streams[1]);
    CHECK_EQ(last(), 1);
}

/* A batch reads its sources during the call, unless the attributes require stream order. */
TEST(a_batch_reads_its_sources_as_early_as_allowed) {
    static const CUmemcpySrcAccessOrder orders[] = {CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
                                                    CU_MEMCPY_SRC_ACCESS_ORDER_ANY};
    STREAMS(CU_STREAM_NON_BLOCKING);
    CU_GET(void *, host, cuMemHostAlloc(&host, SIZE, 0));
    for (size_t i = 0; i < NUM(orders); i++) {
        CUdeviceptr destination = board;
        CUdeviceptr source = ADDRESS(host);
        size_t size = SIZE;
        size_t first = 0;
        CUmemcpyAttributes attributes = {.srcAccessOrder = orders[i]};
        memset(host, 1, SIZE);
        sim_hold();
        CU(cuMemcpyBatchAsync(&destination, &source, &size, 1, &attributes, &first, 1, NULL, streams[1]));
        memset(host, 2, SIZE);
        sim_go();
        CHECK_EQ(last(), i == 0 ? 2 : 1);
    }
    CU(cuMemFreeHost(host));
}
