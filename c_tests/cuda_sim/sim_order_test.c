// SPDX-License-Identifier: Apache-2.0
// What the driver promises no order of, the stand-in does the other way round: a wait that is missing shows.
#include "cuda_sim.h"
#include "driver_test.h"

#define SIZE ((size_t)64)
#define MOST 8

/* Memory that streams write their numbers into: what is there in the end was written last. */
static CUdeviceptr board;
static CUstream streams[MOST];
static CUevent event;

static unsigned set_up(unsigned flags) {
    sim_reset();
    sim_set_order(0);
    open_device(0);
    for (size_t i = 0; i < MOST; i++) CU(cuStreamCreate(&streams[i], flags));
    CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    board = allocate_filled(SIZE, 0xff);
    CU(cuCtxSynchronize());
    return flags;
}

static void tear_down(const unsigned *flags) {
    (void)flags;
    sim_reset();
    for (size_t i = 0; i < MOST; i++) CU(cuStreamDestroy_v2(streams[i]));
    CU(cuEventDestroy_v2(event));
    CU(cuMemFree_v2(board));
    close_device(0);
}

/* The board and streams of these flags, until the scope ends. */
#define STREAMS(flags) CLEANUP(tear_down) const unsigned flags_of_streams = set_up(flags)

static void write_value(unsigned char value, CUstream stream) {
    CU(cuMemsetD8Async(board, value, SIZE, stream));
}

/* What the board has once all is done. */
static unsigned char last(void) {
    unsigned char read[SIZE];
    CU(cuCtxSynchronize());
    CU(cuMemcpyDtoH_v2(read, board, SIZE));
    CHECK_FILLED(read, read[0], SIZE);
    return read[0];
}

TEST(without_an_event_what_came_last_is_done_first) {
    STREAMS(CU_STREAM_NON_BLOCKING);
    for (int held = 0; held < 2; held++) {
        if (held) sim_hold();
        for (unsigned char i = 0; i < MOST; i++) write_value(i, streams[i]);
        if (held) sim_go();
        CHECK_EQ(last(), 0);
    }
}

TEST(with_an_event_it_is_not) {
    STREAMS(CU_STREAM_NON_BLOCKING);
    for (int held = 0; held < 2; held++) {
        if (held) sim_hold();
        write_value(1, streams[1]);
        CU(cuEventRecord(event, streams[1]));
        CU(cuStreamWaitEvent(streams[2], event, 0));
        CU(cuEventRecord(event, streams[3])); /* moves nothing */
        write_value(2, streams[2]);
        if (held) sim_go();
        CHECK_EQ(last(), 2);
    }
}

/* Only what comes after the wait waits, and only for what came before the record. */
TEST(an_event_orders_no_more_than_it_says) {
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
    CU(cuStreamWaitEvent(streams[2], event, 0)); /* of what is done: holds nothing back */
}

/* An event that is recorded after the wait is not what was waited for. */
TEST(a_wait_before_the_record_is_none) {
    STREAMS(CU_STREAM_NON_BLOCKING);
    CU(cuStreamWaitEvent(streams[2], event, 0));
    write_value(1, streams[1]);
    CU(cuEventRecord(event, streams[1]));
    write_value(2, streams[2]);
    CHECK_EQ(last(), 1);
}

TEST(the_default_stream_leaves_streams_alone_that_do_not_block) {
    STREAMS(CU_STREAM_NON_BLOCKING);
    write_value(1, NULL);
    write_value(2, streams[2]);
    CHECK_EQ(last(), 1);
    write_value(3, streams[3]);
    write_value(4, NULL);
    CHECK_EQ(last(), 3);
    write_value(5, streams[3]);
    CU(cuStreamSynchronize(NULL)); /* does not wait for it */
    CU(cuMemsetD8_v2(board, 6, SIZE));
    CHECK_EQ(last(), 5);
}

TEST(streams_that_block_have_no_order_without_it) {
    STREAMS(0);
    write_value(1, streams[1]);
    write_value(2, streams[2]);
    CHECK_EQ(last(), 1);
    write_value(3, streams[3]);
    write_value(4, NULL);
    write_value(5, streams[5]);
    CHECK_EQ(last(), 5);
}

/* Work is nobody's business but its stream's: what waits for one leaves others undone. */
TEST(what_waits_for_a_stream_waits_for_no_other) {
    STREAMS(CU_STREAM_NON_BLOCKING);
    CUcontext other = NULL;
    CUstream far = NULL;
    CU(cuDevicePrimaryCtxRetain(&other, 1));
    CU(cuCtxPushCurrent_v2(other));
    CU(cuStreamCreate(&far, CU_STREAM_NON_BLOCKING));
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

/* A query has the device do some pieces. */
TEST(looking_is_enough_for_work_to_go_on) {
    STREAMS(CU_STREAM_NON_BLOCKING);
    for (unsigned char i = 0; i < 3 * 16; i++) write_value(i, streams[1]);
    CU(cuEventRecord(event, streams[1]));
    CU_EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(streams[1]));
    CU_EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    CU(cuStreamQuery(streams[2])); /* whoever looks */
    CU(cuEventQuery(event));
}

TEST(the_order_by_chance_is_the_same_for_a_seed) {
    unsigned char first[16];
    STREAMS(CU_STREAM_NON_BLOCKING);
    bool differs = false;
    for (int turn = 0; turn < 3; turn++) {
        sim_set_order(turn < 2 ? 7 : 8);
        for (size_t i = 0; i < NUM(first); i++) {
            for (unsigned char value = 0; value < MOST; value++) write_value(value, streams[value]);
            const unsigned char was_last = last();
            CHECK(turn != 1 || was_last == first[i]);
            differs = differs || (i > 0 && was_last != first[i - 1]);
            first[i] = was_last;
        }
    }
    CHECK(differs);
    /* What is ordered stays so. */
    write_value(1, streams[1]);
    CU(cuEventRecord(event, streams[1]));
    CU(cuStreamWaitEvent(streams[2], event, 0));
    write_value(2, streams[2]);
    CHECK_EQ(last(), 2);
}

/* Inside a device and for fills of it the driver's synchronous functions wait for nothing. */
TEST(copies_inside_a_device_are_not_waited_for) {
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

/* From pageable memory they leave before it gets to the device. */
TEST(pageable_memory_is_on_its_way_when_the_call_returns) {
    unsigned char bytes[SIZE];
    STREAMS(CU_STREAM_NON_BLOCKING);
    memset(bytes, 1, SIZE);
    CU(cuMemcpyHtoD_v2(board, bytes, SIZE));
    memset(bytes, 2, SIZE);
    write_value(3, streams[1]);
    CHECK_EQ(last(), 1);
}

/* Unless it is told to read in turn, a batch reads its sources as they are at the call. */
TEST(a_batch_reads_as_early_as_it_may) {
    static const CUmemcpySrcAccessOrder orders[] = {CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
                                                    CU_MEMCPY_SRC_ACCESS_ORDER_ANY};
    STREAMS(CU_STREAM_NON_BLOCKING);
    void *host = NULL;
    CU(cuMemHostAlloc(&host, SIZE, 0));
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
