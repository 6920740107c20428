// SPDX-License-Identifier: Apache-2.0
// Makes each driver call of each operation of a program fail, one after the other. Nothing may leak, the
// caller's context is unchanged, the error contains the driver's error, and the operation works afterwards.
#pragma once

#include "cuda_api.h"
#include "harness.h"
#include "operations.h"

/* The cases of such a program. One of them checks that each operation makes driver calls at all. */
#define WALK_CASES                                                                                   \
    TEST_CALL(every_operation_calls_the_driver, walk_check_calls())                                  \
    TEST_CALL(out_of_memory_anywhere, walk_failing_with(CUDA_ERROR_OUT_OF_MEMORY))                   \
    TEST_CALL(illegal_address_anywhere, walk_failing_with(CUDA_ERROR_ILLEGAL_ADDRESS))               \
    TEST_CALL(unknown_error_anywhere, walk_failing_with(CUDA_ERROR_UNKNOWN))
/* Checks that each operation makes a driver call. */
void walk_check_calls(void);
/* Makes the calls of each operation fail with this result, one of the three above: each third call, or all with KVMEM_FAULTS=all. */
void walk_failing_with(CUresult result);

/* Returns the operation of this name. */
const operation *walk_find(const char *name);
/* Runs an operation without failures. */
void walk_check_works(const operation *operation);
