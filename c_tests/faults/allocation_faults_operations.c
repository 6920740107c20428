// SPDX-License-Identifier: Apache-2.0
// The walk over allocations finds each kind of fault: these operations, which do not use the library, have one each.
#include "walk.h"

const bool operations_have_peer = false;

void operations_open(void) {}
void operations_close(void) {}
void operations_check(void) {}

static void *volatile allocated; /* so that the compiler keeps the calls */

OPERATION(end_the_process_for_a_list) {
    allocated = malloc(65536);
    if (allocated == NULL) abort();
    free(allocated);
    return KVMEM_STATUS_OK;
}

OPERATION(crash_for_a_few_bytes) {
    allocated = malloc(8);
    *(volatile char *)allocated = 1;
    free(allocated);
    return KVMEM_STATUS_OK;
}

OPERATION(call_it_something_else) {
    allocated = malloc(8);
    const kvmem_status status = allocated == NULL ? KVMEM_STATUS_IO : KVMEM_STATUS_OK;
    free(allocated);
    return status;
}

OPERATION(never_end) {
    allocated = malloc(8);
    while (allocated == NULL) sched_yield();
    free(allocated);
    return KVMEM_STATUS_OK;
}

TEST_CALL(a_list_that_ends_the_process_is_found, fault_walk_finds("end_the_process_for_a_list", "ends with 6;"))
TEST_CALL(memory_that_is_used_and_missing_is_found, fault_walk_finds("crash_for_a_few_bytes", "ends with 11;"))
TEST_CALL(another_status_is_found, fault_walk_finds("call_it_something_else", "KVMEM_STATUS_IO"))
TEST_CALL(a_hang_is_found, fault_walk_finds("never_end", "ends with 14;"))
