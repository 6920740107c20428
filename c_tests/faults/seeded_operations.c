// SPDX-License-Identifier: Apache-2.0
// The walk finds each kind of fault: these operations, which do not use the library, have one each.
#include "walk.h"

const bool operations_have_peer = false;

void operations_open(void) {}
void operations_close(void) {}
void operations_check(void) {}

/* Creates two files. Returns whether both exist; `first` is open, if the second one fails. */
static bool create_two(int *first) {
    *first = memfd_create("first", MFD_CLOEXEC);
    if (*first < 0) return false;
    CLEANUP(test_close) const int second = memfd_create("second", MFD_CLOEXEC);
    return second >= 0;
}

/* Each success and each handled failure closes the first file. */
static bool try_two(void) {
    int first = -1;
    const bool is_created = create_two(&first);
    if (first >= 0) close(first);
    return is_created;
}

OPERATION(leaks_a_file_when_the_second_fails) {
    int first = -1;
    if (create_two(&first)) close(first);
    return KVMEM_STATUS_OK;
}

OPERATION(leaks_memory_when_a_call_fails) {
    if (!try_two()) memset(mmap(NULL, 64 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, 1);
    return KVMEM_STATUS_OK;
}

OPERATION(reports_no_errno) { return try_two() ? KVMEM_STATUS_OK : KVMEM_STATUS_IO; }

OPERATION(never_ends_when_a_call_fails) {
    while (!try_two())
        for (;;) sched_yield();
    return KVMEM_STATUS_OK;
}

OPERATION(leaves_a_file_when_a_call_fails) {
    if (!try_two()) write_file(TEXT("%s/left", fault_folder()), "", 0);
    return KVMEM_STATUS_OK;
}

OPERATION(changes_a_file_of_others) {
    if (!try_two()) write_file(TEXT("%s/bystander", fault_folder()), "", 0);
    return KVMEM_STATUS_OK;
}

OPERATION(fails_for_ever_after_a_failure) {
    static bool has_failed;
    has_failed = has_failed || !try_two();
    return has_failed ? KVMEM_STATUS_IO : KVMEM_STATUS_OK;
}

OPERATION(takes_a_signal_for_a_failure) {
    char byte;
    const int file = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
    const bool is_signal = file < 0 || (read(file, &byte, 1) < 0 && errno == EINTR);
    if (file >= 0) close(file);
    return is_signal && errno == EINTR ? KVMEM_STATUS_IO : KVMEM_STATUS_OK;
}

TEST_CALL(a_leaked_file_is_found, fault_walk_finds("leaks_a_file_when_the_second_fails", PRINTED))
TEST_CALL(leaked_memory_is_found, fault_walk_finds("leaks_memory_when_a_call_fails", PRINTED))
TEST_CALL(an_error_without_errno_is_found, fault_walk_finds("reports_no_errno", "KVMEM_STATUS_IO: "))
TEST_CALL(a_hang_is_found, fault_walk_finds("never_ends_when_a_call_fails", "hangs"))
TEST_CALL(a_file_left_behind_is_found, fault_walk_finds("leaves_a_file_when_a_call_fails", PRINTED))
TEST_CALL(a_change_to_others_is_found, fault_walk_finds("changes_a_file_of_others", PRINTED))
TEST_CALL(a_lasting_failure_is_found, fault_walk_finds("fails_for_ever_after_a_failure", PRINTED))
TEST_CALL(an_unhandled_signal_is_found, fault_walk_finds("takes_a_signal_for_a_failure", "KVMEM_STATUS_IO: "))
