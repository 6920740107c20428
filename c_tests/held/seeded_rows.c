// SPDX-License-Identifier: Apache-2.0
// The walk finds each kind of fault: these rows, which do not use the library, have one each.
#include "held.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int leaked = -1;

void held_open(void) {}

void held_close(void) {}

void held_beside(void) {
    CHECK_EQ(pthread_mutex_lock(&lock), 0);
    CHECK_EQ(pthread_mutex_unlock(&lock), 0);
}

static void use_a_file(void) { write_file(TEXT("%s/file", held_folder()), "x", 1); }

static void *use_it(void *nothing) {
    use_a_file();
    return nothing;
}

static pthread_t started;

/* As a function that has a deadline: a thread uses the file, which ends or not. */
static kvmem_status use_by_deadline(void) {
    struct timespec end;
    CHECK_EQ(clock_gettime(CLOCK_REALTIME, &end), 0);
    end.tv_nsec += (long)(held_limit() % SECONDS(1));
    end.tv_sec += (time_t)(held_limit() / SECONDS(1)) + end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    CHECK_EQ(pthread_create(&started, NULL, use_it, NULL), 0);
    return pthread_timedjoin_np(started, NULL, &end) == 0 ? KVMEM_STATUS_OK : KVMEM_STATUS_TIMED_OUT;
}

static kvmem_status ignores_its_deadline(void) {
    use_a_file();
    return KVMEM_STATUS_OK;
}

static kvmem_status holds_a_lock(void) {
    CHECK_EQ(pthread_mutex_lock(&lock), 0);
    const kvmem_status status = use_by_deadline();
    CHECK_EQ(pthread_mutex_unlock(&lock), 0);
    return status;
}

static kvmem_status leaks_when_it_is_late(void) {
    const kvmem_status status = use_by_deadline();
    if (status == KVMEM_STATUS_TIMED_OUT) leaked = memfd_create("leaked", MFD_CLOEXEC);
    return status;
}

static kvmem_status has_another_status(void) {
    return use_by_deadline() == KVMEM_STATUS_OK ? KVMEM_STATUS_OK : KVMEM_STATUS_IO;
}

static kvmem_status makes_no_call(void) { return KVMEM_STATUS_OK; }

const held_row held_rows[] = {
    {.functions = "ignores_its_deadline", .run = ignores_its_deadline},
    {.functions = "holds_a_lock", .run = holds_a_lock},
    {.functions = "leaks_when_it_is_late", .run = leaks_when_it_is_late},
    {.functions = "has_another_status", .run = has_another_status},
    {.functions = "makes_no_call", .run = makes_no_call},
    {.functions = "has_no_fault", .run = use_by_deadline},
};
const size_t held_num_rows = NUM(held_rows);

TEST_CALL(a_deadline_that_is_ignored_is_found, held_finds("ignores_its_deadline", "it does not end at its deadline"))
TEST_CALL(a_lock_that_is_held_is_found, held_finds("holds_a_lock", "other calls wait for the one that is held"))
TEST_CALL(a_leaked_file_is_found, held_finds("leaks_when_it_is_late", "resources are left"))
TEST_CALL(another_status_is_found, held_finds("has_another_status", "while the call is held it returns KVMEM_STATUS_IO"))
TEST_CALL(a_row_without_a_call_is_found, held_finds("makes_no_call", "it makes no call that can be held"))
TEST_CALL(a_function_without_a_fault_passes, held_finds("has_no_fault", NULL))
