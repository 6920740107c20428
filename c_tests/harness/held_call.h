// SPDX-License-Identifier: Apache-2.0
// A thread that is stopped in a system call, until the test lets the kernel perform the call.
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Runs `body` on a thread, and returns once the thread makes a system call of this number for whose arguments
   `wanted` returns true. Only one at a time in a process; the thread must not start others. Under the address
   sanitizer no child can be forked meanwhile, because in_a_forked_child waits for the thread. */
void held_call_begin(void (*body)(void), long number, bool (*wanted)(const uint64_t *arguments));
/* Performs the call, and waits until the thread has ended. */
void held_call_end(void);
