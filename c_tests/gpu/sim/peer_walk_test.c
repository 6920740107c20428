// SPDX-License-Identifier: Apache-2.0
// Every driver call of transfers between two GPUs fails in turn: nothing leaks, the caller's context stays, the error
// says what the driver said, and the transfer works afterwards.
#include "stance.h"
#include "walk.h"

static const test_case cases[] = {
    CASE(every_operation_calls_the_driver),
    CASE(out_of_memory_anywhere),
    CASE(illegal_address_anywhere),
    CASE(unknown_error_anywhere),
};
GPU_MAIN
