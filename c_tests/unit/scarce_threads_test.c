// SPDX-License-Identifier: Apache-2.0
// If no thread can be started, calls do the work themselves or fail with OUT_OF_MEMORY, and none waits
// forever. Each case needs different threads of the library, so that none is left over from an earlier case.
#include "harness.h"

static const kv_move some = KV_MOVE(3, {6, 0}, {0, 5}, {1, 6}, {3, 3});

static kvmem_status submit(void *transfer) { return kvmem_transfer_submit(transfer, NULL, NULL); }

static kvmem_transfer *create(const kv_side *source, const kv_side *destination, const kv_move *move,
                              uint32_t method, uint64_t flags) {
    kv_job options = WITH(kv_job_of(move), it.transfer.method = method, KV_SET_FLAGS(flags));
    return MADE(kvmem_transfer, kv_prepare, source->layout, destination->layout, &options);
}

/* More bytes than a submitting call usually copies itself. */
TEST(a_copy_is_made_by_the_caller) {
    const kv_move move = KV_MOVE(4, {0, 1}, {63, 0}, {5, 63}, {6, 62}, {40, 7});
    KV_SIDES(source, destination, kv_large_config(&kv_kinds[0]), kv_large_config(&kv_kinds[0]));
    OWNED(kvmem_transfer) transfer = create(&source, &destination, &move, KVMEM_METHOD_MEMCPY, 0);
    CHECK_EQ(without_new_threads(submit, transfer), KVMEM_STATUS_OK);
    EXPECT_OK(kvmem_transfer_poll(transfer, ERR));
    kv_side_check_moved(&destination, &source, &move);
}

typedef struct file_world {
    file_pair pair;
    kvmem_transfer *transfer;
} file_world;

static void file_world_open(file_world *world, uint32_t method) {
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    file_pair_open(&world->pair, &config, &config, NULL, 0);
    world->transfer = file_pair_transfer(&world->pair, true, KV_JOB(&some, it.transfer.method = method));
}

static void file_world_close(file_world *world) {
    file_pair_check_moved(&world->pair, true, &some);
    kvmem_transfer_destroy(world->transfer);
    file_pair_close(&world->pair);
}

/* The caller's thread never waits for a file system, which may not respond. */
static void check_file_without_threads(uint32_t method, const char *thread) {
    OPENED(file_world, world, method);
    CHECK_EQ(without_new_threads(submit, world.transfer), KVMEM_STATUS_OK);
    EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_MEMORY, thread, kvmem_transfer_wait(world.transfer, PATIENCE, ERR));
    RUN(world.transfer);
}

TEST(a_file_without_threads_fails_and_works_later) {
    check_file_without_threads(KVMEM_METHOD_PREAD, "start the thread kvmem-file");
}

TEST(io_uring_without_its_thread_fails_and_works_later) {
    if (can_test_io_uring()) check_file_without_threads(KVMEM_METHOD_URING, "start the thread kvmem-");
}

TEST(a_verification_without_its_thread_fails_and_works_later) {
    KV_SIDES(source, destination, kv_config(&kv_kinds[0]), kv_config(&kv_kinds[0]));
    OWNED(kvmem_transfer) transfer = create(&source, &destination, &some, KVMEM_METHOD_MEMCPY,
                                            KV_VERIFY);
    CHECK_EQ(without_new_threads(submit, transfer), KVMEM_STATUS_OK);
    EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_MEMORY, "thread", kvmem_transfer_wait(transfer, PATIENCE, ERR));
    RUN(transfer);
}

typedef struct adoption {
    unsigned char memory[4096];
    kvmem_region *region;
} adoption;

static kvmem_status adopt(void *context) {
    adoption *mine = context;
    kvmem_adopt_options options = OPTIONS(kvmem_adopt_options, it.address = mine->memory,
                                          it.size = sizeof(mine->memory), it.release = note_release);
    return kvmem_region_adopt_host(&options, &mine->region, NULL);
}

TEST(memory_is_not_adopted_without_a_thread_for_its_release) {
    static adoption adoption;
    CHECK_EQ(without_new_threads(adopt, &adoption), KVMEM_STATUS_OUT_OF_MEMORY);
    CHECK(adoption.region == NULL);
    CHECK_EQ(releases_count(), 0);
    CHECK_EQ(adopt(&adoption), KVMEM_STATUS_OK);
    kvmem_region_destroy(adoption.region);
    CHECK_EQ(releases_count(), 1);
}

static void count_message(uint32_t level, const char *target, const char *message, void *user_data) {
    (void)level, (void)target, (void)message;
    ++*(atomic_int *)user_data;
}

static kvmem_status install(void *user_data) {
    return kvmem_log_set_callback(KVMEM_LOG_TRACE, count_message, user_data, NULL);
}

TEST(a_log_callback_without_its_thread_is_not_installed) {
    atomic_int messages = 0;
    CHECK_EQ(without_new_threads(install, &messages), KVMEM_STATUS_OUT_OF_MEMORY);
    CHECK_EQ(install(&messages), KVMEM_STATUS_OK);
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_OFF, NULL, NULL, ERR));
}
