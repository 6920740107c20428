// SPDX-License-Identifier: Apache-2.0
// A thread that stands in the middle of what it does: in a system call, which is made when the test says so.
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Runs `body` on a thread, and returns when that is in a system call of this number that is `wanted` by
   its arguments. One at a time in a process; the thread starts no others. Under the address sanitizer no
   child can be forked meanwhile: in_a_forked_child waits for the thread. */
void held_call_begin(void (*body)(void), long number, bool (*wanted)(const uint64_t *arguments));
/* Lets it go on, and waits for its end. */
void held_call_end(void);
