// SPDX-License-Identifier: Apache-2.0
// Completion queues: the event fd and the counts are correct, and no completion is lost.
#include "harness.h"

static const kv_move move = KV_MOVE(3, {0, 6}, {3, 1});

static kvmem_queue *create(void) { return MADE(kvmem_queue, kvmem_queue_create); }

static int fd_of(const kvmem_queue *queue) {
    GET(int32_t, fd, kvmem_queue_get_fd, queue);
    CHECK(fd >= 0);
    return fd;
}

static bool is_readable(int fd, int timeout_ms) {
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    return poll(&ready, 1, timeout_ms) == 1 && (ready.revents & POLLIN) != 0;
}

static kvmem_transfer *create_transfer(const kv_side *source, const kv_side *destination, kvmem_queue *queue,
                                       uint64_t user_data) {
    return MADE(kvmem_transfer, kv_prepare, source->layout, destination->layout,
                KV_JOB(&move, it.transfer.queue = queue, it.run.user_data = user_data));
}

TEST(only_a_call_that_waits_fails_for_an_empty_queue) {
    OWNED(kvmem_queue) queue = create();
    const int fd = fd_of(queue);
    CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    CHECK(!is_readable(fd, 0));
    kvmem_completion completion = {.user_data = 77};
    size_t count = 99;
    EXPECT_OK(kvmem_queue_wait(queue, 0, &completion, 1, &count, ERR));
    CHECK_EQ(count, 0);
    count = 99;
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_queue_wait(queue, MILLISECONDS(5), &completion, 1, &count, ERR));
    CHECK_EQ(completion.user_data, 77);
}

TEST(destroying_closes_the_fd) {
    kvmem_queue_destroy(create());
    const size_t files = count_open_files();
    for (int i = 0; i < 20; i++) kvmem_queue_destroy(create());
    CHECK_EQ(count_open_files(), files);
    kvmem_queue_destroy(NULL);
}

TEST(a_completion_echoes_its_user_data_and_wakes_poll) {
    KV_SIDES(source, destination, kv_config(&kv_kinds[0]), kv_config(&kv_kinds[0]));
    OWNED(kvmem_queue) queue = create();
    OWNED(kvmem_transfer) transfer = create_transfer(&source, &destination, queue,
                                                     UINT64_C(0xFEDCBA9876543210));
    CHECK(!is_readable(fd_of(queue), 0)); /* creating moves nothing */
    EXPECT_OK(kvmem_transfer_submit(transfer, NULL, ERR));
    CHECK(is_readable(fd_of(queue), PATIENCE_MS));
    kvmem_completion completion;
    GET(size_t, count, kvmem_queue_wait, queue, 0, &completion, 1);
    CHECK_EQ(count, 1);
    CHECK_EQ(completion.user_data, UINT64_C(0xFEDCBA9876543210));
    CHECK_EQ(completion.status, KVMEM_STATUS_OK);
    CHECK_EQ(completion.bytes, 2 * 3 * 2 * 48);
    CHECK_EQ(completion.reserved, 0);
    CHECK(!is_readable(fd_of(queue), 0));
}

TEST(the_fd_is_readable_until_the_queue_is_empty) {
    KV_SIDES(source, destination, kv_config(&kv_kinds[0]), kv_config(&kv_kinds[0]));
    OWNED(kvmem_queue) queue = create();
    OWNED(kvmem_transfer) transfer = create_transfer(&source, &destination, queue, 5);
    for (int i = 0; i < 3; i++) RUN(transfer);
    kvmem_completion completions[2];
    size_t count = 0;
    for (size_t taken = 0; taken < 3; taken += count) {
        CHECK(is_readable(fd_of(queue), PATIENCE_MS));
        EXPECT_OK(kvmem_queue_wait(queue, PATIENCE, completions, 2, &count, ERR));
        CHECK(count >= 1 && count <= 2);
    }
    CHECK(!is_readable(fd_of(queue), 0));
}

#define MANY 1000

TEST(a_thousand_in_flight_all_arrive_once) {
    KV_SIDES(source, destination, kv_config(&kv_kinds[0]), kv_config(&kv_kinds[0]));
    OWNED(kvmem_queue) queue = create();
    CLEANUP(test_free) kvmem_transfer **transfers = test_allocate(MANY * sizeof(*transfers));
    CLEANUP(test_free) unsigned char *seen = test_allocate(MANY);
    for (size_t i = 0; i < MANY; i++) transfers[i] = create_transfer(&source, &destination, queue, i);
    for (size_t i = 0; i < MANY; i++) EXPECT_OK(kvmem_transfer_submit(transfers[i], NULL, ERR));
    kvmem_completion completions[7];
    size_t count = 0;
    for (size_t taken = 0; taken < MANY; taken += count) {
        EXPECT_OK(kvmem_queue_wait(queue, PATIENCE, completions, NUM(completions), &count, ERR));
        for (size_t i = 0; i < count; i++) {
            CHECK_EQ(completions[i].status, KVMEM_STATUS_OK);
            CHECK(completions[i].user_data < MANY);
            CHECK_EQ(seen[completions[i].user_data]++, 0);
        }
    }
    EXPECT_OK(kvmem_queue_wait(queue, 0, completions, NUM(completions), &count, ERR));
    CHECK_EQ(count, 0);
    for (size_t i = 0; i < MANY; i++) kvmem_transfer_destroy(transfers[i]);
    kv_side_check_moved(&destination, &source, &move);
}

TEST(a_queue_may_be_destroyed_before_its_transfers) {
    KV_SIDES(source, destination, kv_config(&kv_kinds[0]), kv_config(&kv_kinds[0]));
    kvmem_queue *queue = create();
    kvmem_transfer *transfer = create_transfer(&source, &destination, queue, 1);
    kvmem_queue_destroy(queue);
    RUN(transfer);
    kvmem_transfer_destroy(transfer);
    kv_side_check_moved(&destination, &source, &move);
}
