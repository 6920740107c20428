// SPDX-License-Identifier: Apache-2.0
// A kernel of the engine that runs until the host lets it end, as persistent kernels do.
#pragma once

#include "streams.h"

/* Ends the kernel after PATIENCE, so that a call that waits for the kernel returns. */
typedef struct busy_guard busy_guard;

typedef struct busy {
    stream stream;
    CUmodule module;
    /* page-locked: the kernel sets the second when it runs, and ends when the first is set */
    volatile uint32_t *words;
    busy_guard *guard;
} busy;

/* CTAs of the kernel: one, or more than all multiprocessors execute at a time. */
enum { BUSY_ONE = 1, BUSY_ALL = 4096 };

/* Starts the kernel on device 0 and waits until it runs. With the stand-in driver, all submitted work is held
   back. */
void busy_begin(busy *busy, unsigned ctas);
/* Lets the kernel end, and waits for that. Fails if it had to be ended before, because a call waited for
   it. */
void busy_end(busy *busy);
