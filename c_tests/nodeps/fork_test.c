// SPDX-License-Identifier: Apache-2.0
// Forks while another thread is initializing something once per process, or holds a lock: the child works or
// its call fails, and it does not wait for a thread that it does not have. Each case has a process that has
// not called kvmem yet.
#include "harness.h"

static const char *opened; /* a part of the file's path */

static bool opens_it(const uint64_t *arguments) {
    return strstr((const char *)(uintptr_t)arguments[1], opened) != NULL;
}

static bool is_wipe_on_fork(const uint64_t *arguments) { return arguments[2] == MADV_WIPEONFORK; }

static void make_queue(void) { OWN(kvmem_queue, queue, kvmem_queue_create); }

static void during_the_first_call(void) {
    held_call_begin(make_queue, SYS_madvise, is_wipe_on_fork);
    in_a_forked_child(make_queue);
    held_call_end();
    make_queue();
}

static void share(void) {
    OWN(kvmem_region, region, kvmem_region_create_system, REF(OPTIONS(kvmem_system_options, it.size = 4096,
                                                                      it.flags = KVMEM_SYSTEM_SHAREABLE)));
    OWN(kvmem_share, made, kvmem_share_create_region, region, NULL);
}

static void during_the_first_share(void) {
    opened = "boot_id";
    held_call_begin(share, SYS_openat, opens_it);
    in_a_forked_child(share);
    held_call_end();
    share();
}

static void load_nixl(void) {
    EXPECT_MESSAGE(KVMEM_STATUS_UNAVAILABLE_NIXL, "too old",
                   kvmem_nixl_load(KVMEM_TEST_TOO_OLD_LIBRARY, ERR));
    test_forget_error();
}

static void expect_no_nixl(void) {
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "forked", kvmem_nixl_load(KVMEM_TEST_TOO_OLD_LIBRARY, ERR));
    REFUSE(KVMEM_STATUS_INVALID_STATE, "forked", kvmem_agent_create, "child", NULL);
    share(); /* which needs no NIXL */
}

static void expect_no_nixl_in_child(void) {
    expect_no_nixl();
    in_a_forked_child(expect_no_nixl);
}

static void during_the_loading_of_nixl(void) {
    opened = KVMEM_TEST_TOO_OLD_LIBRARY;
    held_call_begin(load_nixl, SYS_openat, opens_it);
    in_a_forked_child(expect_no_nixl_in_child);
    held_call_end();
    load_nixl();
    in_a_forked_child(load_nixl);
}

/* CUDA may be missing or present on this machine. */
static void find_cuda(void) {
    kvmem_cuda_info info;
    const kvmem_status status = kvmem_cuda_get_info(&info, ERR);
    CHECK(status == KVMEM_STATUS_OK || status == KVMEM_STATUS_UNAVAILABLE_CUDA);
    test_forget_error();
}

static void expect_no_cuda(void) {
    kvmem_cuda_info info;
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "forked", kvmem_cuda_get_info(&info, ERR));
    share();
}

static void during_the_initialisation_of_cuda(void) {
    opened = "libcuda.so";
    held_call_begin(find_cuda, SYS_openat, opens_it);
    in_a_forked_child(expect_no_cuda);
    held_call_end();
    find_cuda();
}

static void ignore_message(uint32_t level, const char *target, const char *message, void *user_data) {
    (void)level;
    (void)target;
    (void)message;
    (void)user_data;
}

static void set_callback(void) {
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_TRACE, ignore_message, NULL, ERR));
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_OFF, NULL, NULL, ERR));
}

static atomic_bool is_enough;

static void *set_callbacks(void *nothing) {
    while (!is_enough) {
        set_callback();
        sched_yield();
    }
    return nothing;
}

/* Between fork and here there is no system call that could be stopped. If there were a lock, one of so many
   forks would find it taken. */
static void during_changes_of_the_log_callback(void) {
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, set_callbacks, NULL), 0);
    for (int i = 0; i < 300; i++) {
        in_a_forked_child(set_callback);
    }
    is_enough = true;
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

static atomic_bool is_blocked;
static atomic_bool may_go_on;

static void block(uint32_t level, const char *target, const char *message, void *user_data) {
    (void)level, (void)target, (void)message, (void)user_data;
    is_blocked = true;
    while (!may_go_on) sched_yield();
}

static void count_message(uint32_t level, const char *target, const char *message, void *user_data) {
    (void)level, (void)target, (void)message;
    ++*(atomic_int *)user_data;
}

/* Requests more huge pages than are free, which is logged. */
static void log_something(void) { kvmem_region_destroy(region_create_with_fallback()); }

/* The child has neither the callback nor the threads of its parent. */
static void log_and_release(void) {
    static unsigned char memory[4096];
    const int before = releases_count();
    log_something(); /* no callback is installed */
    GET(atomic_int, messages, kvmem_log_set_callback, KVMEM_LOG_TRACE, count_message);
    log_something();
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_OFF, NULL, NULL, ERR));
    CHECK(messages > 0);
    kvmem_region_destroy(region_adopt_noting_release(memory, sizeof(memory)));
    CHECK_EQ(releases_count(), before + 1);
}

static void with_a_log_callback_that_blocks(void) {
    static unsigned char memory[4096];
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_TRACE, block, NULL, ERR));
    /* starts the thread for releases */
    kvmem_region *adopted = region_adopt_noting_release(memory, sizeof(memory));
    log_something();
    while (!is_blocked) { /* only the deadline of the process limits this */
        sched_yield();
    }
    in_a_forked_child(log_and_release);
    may_go_on = true;
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_OFF, NULL, NULL, ERR));
    kvmem_region_destroy(adopted);
    CHECK_EQ(releases_count(), 1);
}

TEST_CALL(a_child_forked_during_the_first_call_works, in_a_forked_child(during_the_first_call))
TEST_CALL(a_child_forked_during_the_first_share_works, in_a_forked_child(during_the_first_share))
TEST_CALL(a_child_forked_during_the_loading_of_nixl_works, in_a_forked_child(during_the_loading_of_nixl))
TEST_CALL(a_child_forked_during_the_initialisation_of_cuda_works,
          in_a_forked_child(during_the_initialisation_of_cuda))
TEST_CALL(a_child_forked_during_changes_of_the_log_callback_works,
          in_a_forked_child(during_changes_of_the_log_callback))
TEST_CALL(a_child_forked_during_a_log_callback_works,
          in_a_forked_child(with_a_log_callback_that_blocks))
