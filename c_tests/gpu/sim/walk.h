// SPDX-License-Identifier: Apache-2.0
// Every driver call of every operation of a program fails in turn: nothing leaks, the caller's context stays,
// the error says what the driver said, and the operation works afterwards.
#pragma once

#include "cuda_api.h"
#include "harness.h"
#include "operations.h"

/* The cases of a program that walks. A walk over no calls would show nothing: that there are some is one of
   them. */
#define WALK_CASES                                                                                   \
    TEST_CALL(every_operation_calls_the_driver, walk_check_calls())                                  \
    TEST_CALL(out_of_memory_anywhere, walk_failing_with(CUDA_ERROR_OUT_OF_MEMORY))                   \
    TEST_CALL(illegal_address_anywhere, walk_failing_with(CUDA_ERROR_ILLEGAL_ADDRESS))               \
    TEST_CALL(unknown_error_anywhere, walk_failing_with(CUDA_ERROR_UNKNOWN))
/* Each operation makes a call that can fail. */
void walk_check_calls(void);
/* Has each call of each operation fail with this result, one of three. */
void walk_failing_with(CUresult result);

/* The operation of this name. */
const operation *walk_find(const char *name);
/* Runs an operation with nothing failing. */
void walk_check_works(const operation *operation);
