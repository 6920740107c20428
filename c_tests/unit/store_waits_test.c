// SPDX-License-Identifier: Apache-2.0
// The file system of a store does not respond, and its caller opens it again and again. held.store has the other calls that wait.
#include "harness.h"
#include "held_call.h"

#include <stdatomic.h>
#include <sys/syscall.h>

#define LIMIT MILLISECONDS(100)

static const char *path;
static atomic_bool has_tried;

static kvmem_status open_store(uint64_t timeout) {
    store_setup setup;
    kvmem_store *opened = NULL;
    store_setup_init(&setup, path, REF(kv_aligned_config(&kv_kinds[0])));
    const kvmem_status outcome = kvmem_store_open(&setup.options, timeout, &opened, ERR);
    kvmem_store_destroy(opened);
    return outcome;
}

/* Each attempt has its deadline, and none of them a thread more. */
static void open_again_and_again(void) {
    EXPECT(KVMEM_STATUS_TIMED_OUT, open_store(LIMIT));
    const size_t threads = count_directory_entries("/proc/self/task");
    for (int i = 0; i < 5; i++) EXPECT(KVMEM_STATUS_TIMED_OUT, open_store(LIMIT));
    CHECK_EQ(count_directory_entries("/proc/self/task"), threads);
    test_forget_error();
    has_tried = true;
}

static bool is_any(const uint64_t *arguments) {
    (void)arguments;
    return true;
}

TEST(openings_that_are_repeated_while_the_file_system_does_not_respond_wait_on_one_thread) {
    SCRATCH_FILE(folder, "store");
    path = folder;
    held_call_begin(open_again_and_again, SYS_fdatasync, is_any);
    AWAIT(has_tried);
    held_call_end();
    AWAIT(open_store(PATIENCE) == KVMEM_STATUS_OK); /* the late one may still have it open */
    test_forget_error();
}
