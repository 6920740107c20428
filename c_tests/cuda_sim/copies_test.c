// SPDX-License-Identifier: Apache-2.0
// Copies and batches of copies: contents, checks of ranges, ranges of page-locked memory.
#include "driver_test.h"

#include <sys/mman.h>

#define SIZE ((size_t)64 * 1024)

typedef struct sides {
    unsigned char *host;
    CUdeviceptr one, two;
    CUstream stream;
} sides;

static void sides_open(sides *sides) {
    open_device(0);
    sides->host = test_allocate(SIZE);
    for (size_t i = 0; i < SIZE; i++) sides->host[i] = (unsigned char)(i * 7 + i / 251);
    sides->one = allocate_filled(SIZE, 1);
    sides->two = allocate_filled(SIZE, 2);
    CU(cuStreamCreate(&sides->stream, CU_STREAM_NON_BLOCKING));
}

static void sides_close(sides *sides) {
    CU(cuStreamDestroy_v2(sides->stream));
    CU(cuMemFree_v2(sides->one));
    CU(cuMemFree_v2(sides->two));
    free(sides->host);
    close_device(0);
}

/* Checks that the bytes of the host were copied to both allocations and back. */
static void expect_back(const unsigned char *back, const sides *sides) {
    CHECK_BYTES(back, sides->host, SIZE);
}

TEST(every_copy_function_copies_the_bytes) {
    OPENED(sides, sides);
    unsigned char *back = test_allocate(SIZE);
    CU(cuMemcpyHtoD_v2(sides.one, sides.host, SIZE));
    CU(cuMemcpyDtoD_v2(sides.two, sides.one, SIZE));
    CU(cuMemcpyDtoH_v2(back, sides.two, SIZE));
    expect_back(back, &sides);
    memset(back, 0, SIZE);
    CU(cuMemsetD8Async(sides.one, 0, SIZE, sides.stream));
    CU(cuMemcpyHtoDAsync_v2(sides.one, sides.host, SIZE, sides.stream));
    CU(cuMemcpyDtoDAsync_v2(sides.two, sides.one, SIZE, sides.stream));
    CU(cuMemcpyDtoHAsync_v2(back, sides.two, SIZE, sides.stream));
    CU(cuStreamSynchronize(sides.stream));
    expect_back(back, &sides);
    memset(back, 0, SIZE);
    CU(cuMemcpy(sides.one, ADDRESS(sides.host), SIZE));
    CU(cuMemcpyAsync(ADDRESS(back), sides.one, SIZE, sides.stream));
    CU(cuStreamSynchronize(sides.stream));
    expect_back(back, &sides);
    CU(cuMemcpy(ADDRESS(back), ADDRESS(sides.host) + 1, SIZE - 1)); /* between host memory */
    CHECK_BYTES(back, sides.host + 1, SIZE - 1);
    free(back);
}

TEST(ranges_are_checked) {
    OPENED(sides, sides);
    const CUdeviceptr host = ADDRESS(sides.host);
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(sides.one + 1, sides.host, SIZE));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(sides.host, sides.one + 1, SIZE));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(sides.one + 1, 0, SIZE));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy(sides.one, 0, 64));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy(0, sides.one, 64));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(sides.one, NULL, 64));
    /* host memory as device memory */
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD_v2(sides.one, host, 64));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(host, sides.host + 64, 64));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(sides.host, host + 64, 64));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(host, 0, 64));
    CU(cuMemcpyDtoH_v2(POINTER(sides.one), sides.two, 64)); /* device memory as host memory is accepted */
    check_device_filled(sides.one, 2, 64);
    CU(cuMemcpy(0, 0, 0));
    CU(cuMemsetD8_v2(0, 1, 0));
}

TEST(a_registration_is_one_range) {
    OPENED(sides, sides);
    const size_t half = SIZE / 2;
    unsigned char *host = mmap(NULL, 3 * half, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(host != MAP_FAILED);
    unsigned char *locked = host + half;
    CU(cuMemHostRegister_v2(locked, half / 2, 0));
    CU(cuMemHostRegister_v2(locked + half / 2, half / 2, 0));
    CU(cuMemcpyHtoD_v2(sides.one, locked, half / 2));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(sides.one, locked, half)); /* straddles two */
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(locked + 64, sides.one, half / 2));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(ADDRESS(locked), 0, half));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoDAsync_v2(sides.one, locked, half, sides.stream));
    CU(cuMemHostUnregister(locked));
    CU(cuMemHostUnregister(locked + half / 2));
    CU(cuMemcpyHtoD_v2(sides.one, locked, half));
    munmap(host, 3 * half);
}

TEST(peers_copy_but_do_not_fill) {
    CUdeviceptr far = 0;
    OPENED(sides, sides);
    CU_GET(CUcontext, other, cuDevicePrimaryCtxRetain(&other, 1));
    CU(cuCtxPushCurrent_v2(other));
    far = allocate_filled(SIZE, 3);
    CU(cuMemcpyDtoD_v2(sides.one, far, SIZE));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(sides.one, 0, SIZE));
    CU(cuCtxPopCurrent_v2(NULL));
    check_device_filled(sides.one, 3, SIZE);
    CU(cuMemcpyDtoD_v2(far, sides.two, SIZE));
    check_device_filled(far, 2, SIZE);
    CU(cuMemFree_v2(far));
    CU(cuDevicePrimaryCtxRelease_v2(1));
}

TEST(copies_on_a_stream_need_no_current_context) {
    OPENED(sides, sides);
    CU_GET(CUcontext, popped, cuCtxPopCurrent_v2(&popped));
    CU(cuMemcpyAsync(sides.one, sides.two, SIZE, sides.stream));
    CU(cuMemsetD8Async(sides.two, 5, SIZE, sides.stream));
    CU(cuStreamSynchronize(sides.stream));
    CU_EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuMemcpyAsync(sides.one, sides.two, SIZE, NULL));
    CU(cuCtxPushCurrent_v2(popped));
    check_device_filled(sides.one, 2, SIZE);
}

#define NUM_COPIES 3
#define NONE_FAILED ((size_t)-1)

typedef struct batch {
    CUdeviceptr destinations[NUM_COPIES], sources[NUM_COPIES];
    size_t sizes[NUM_COPIES], first_copies[NUM_COPIES];
    CUmemcpyAttributes attributes[NUM_COPIES];
    size_t count, num_attributes;
} batch;

/* From the second allocation to the first, 1 KiB of every 4 KiB. */
static batch batch_of(const sides *sides) {
    batch made = {.count = NUM_COPIES, .num_attributes = 1};
    for (size_t i = 0; i < NUM_COPIES; i++) {
        made.destinations[i] = sides->one + 4096 * i;
        made.sources[i] = sides->two + 4096 * i;
        made.sizes[i] = 1024;
        made.first_copies[i] = i;
        made.attributes[i].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    }
    return made;
}

static CUresult submit(batch *batch, size_t *failed, CUstream stream) {
    *failed = 77;
    return cuMemcpyBatchAsync(batch->destinations, batch->sources, batch->sizes, batch->count,
                              batch->attributes, batch->first_copies, batch->num_attributes, failed, stream);
}

TEST(a_batch_moves_its_copies) {
    OPENED(sides, sides);
    batch batch = batch_of(&sides);
    CU_GET(size_t, failed, submit(&batch, &failed, sides.stream));
    CHECK_EQ(failed, NONE_FAILED);
    CU(cuStreamSynchronize(sides.stream));
    for (size_t i = 0; i < NUM_COPIES; i++) {
        check_device_filled(batch.destinations[i], 2, 1024);
        check_device_filled(batch.destinations[i] + 1024, 1, 3072);
    }
    batch.num_attributes = NUM_COPIES;
    CU(submit(&batch, &failed, CU_STREAM_PER_THREAD));
    batch.destinations[1] = ADDRESS(sides.host); /* pageable memory is accepted */
    CU(submit(&batch, &failed, sides.stream));
    CU(cuStreamSynchronize(sides.stream));
    CU(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    CHECK_FILLED(sides.host, 2, 1024);
}

static void expect_invalid(batch batch, CUstream stream, size_t expected_failed) {
    size_t failed = 0;
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, submit(&batch, &failed, stream));
    CHECK_EQ(failed, expected_failed);
}

TEST(a_batch_is_checked) {
    OPENED(sides, sides);
    const batch good = batch_of(&sides);
    batch bad = good;
    expect_invalid(good, NULL, 77); /* fails before all other checks */
    expect_invalid(good, CU_STREAM_LEGACY, NONE_FAILED);
    bad.count = 0;
    expect_invalid(bad, sides.stream, NONE_FAILED);
    bad = good, bad.num_attributes = 0;
    expect_invalid(bad, sides.stream, NONE_FAILED);
    bad = good, bad.num_attributes = 3, bad.count = 2;
    expect_invalid(bad, sides.stream, NONE_FAILED);
    bad = good, bad.first_copies[0] = 1;
    expect_invalid(bad, sides.stream, NONE_FAILED);
    bad = good, bad.num_attributes = 2, bad.first_copies[1] = 0;
    expect_invalid(bad, sides.stream, NONE_FAILED);
    bad = good, bad.num_attributes = 2, bad.first_copies[1] = 3;
    expect_invalid(bad, sides.stream, NONE_FAILED);
    bad = good, bad.attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
    expect_invalid(bad, sides.stream, NONE_FAILED);
    bad = good, bad.attributes[0].flags = 8;
    expect_invalid(bad, sides.stream, NONE_FAILED);
    bad = good, bad.sizes[1] = 0;
    expect_invalid(bad, sides.stream, 1);
    bad = good, bad.destinations[2] = 0;
    expect_invalid(bad, sides.stream, 2);
    bad = good, bad.sizes[1] = SIZE;
    expect_invalid(bad, sides.stream, 1);
}
