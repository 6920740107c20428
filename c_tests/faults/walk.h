// SPDX-License-Identifier: Apache-2.0
// Makes each system call of each operation of a program fail, one after the other, in every way that the call can fail.
// Each time in a process of its own: the operation ends by its deadline, with success or with an error that contains the
// errno; nothing leaks; no other file or memory changes; and the operation succeeds when it is repeated there.
#pragma once

#include "harness.h"
#include "operations.h"

#ifdef WALK_OF_ALLOCATIONS
#define FAULT_WALK_CASES TEST_CALL(each_allocation_fails, fault_walk())
#define FAULT_WALK_OF_NONE_CASES FAULT_WALK_CASES
#else
#define FAULT_WALK_CASES TEST_CALL(each_system_call_fails, fault_walk())
#define FAULT_WALK_OF_NONE_CASES TEST_CALL(no_system_call_can_fail, fault_walk_of_none())
#endif

/* With KVMEM_FAULTS=all in each way, once and from then on, at each call; of a place in a loop, at the first eight and the last
   two. Else each place of the code in one way, which differs from call to call. */
void fault_walk(void);
/* Checks that each operation succeeds, and makes no system call that can fail. */
void fault_walk_of_none(void);
/* Checks that the walk finds the fault of the operation of this name, and reports it so. */
void fault_walk_finds(const char *name, const char *fault);
/* What a child has printed is reported so. */
#define PRINTED "see above"

/* The directory of the operations, in which they may leave files of these names only: "cache", "socket", "cluster". */
const char *fault_folder(void);
/* Checks what the operations must never change; each program has one, called after each of them. */
void operations_check(void);
/* Whether some of them wait for a peer or a thread that serves: it may end, or try again beyond the deadline. */
extern const bool operations_have_peer;
