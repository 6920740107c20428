// SPDX-License-Identifier: Apache-2.0
// Every driver call of every operation of a program fails in turn: nothing leaks, the caller's context stays,
// the error says what the driver said, and the operation works afterwards.
#ifndef KVMEM_TEST_GPU_WALK_H
#define KVMEM_TEST_GPU_WALK_H

#include "operations.h"

/* Cases. A walk over no calls would show nothing: that there are some is one of them. */
void every_operation_calls_the_driver(void);
void out_of_memory_anywhere(void);
void illegal_address_anywhere(void);
void unknown_error_anywhere(void);

/* Runs an operation with nothing failing. */
void walk_check_works(const operation *operation);

#endif
