// SPDX-License-Identifier: Apache-2.0
// Waiting for what must happen, with an end to it.
#pragma once

#include "harness.h"

/* On the monotonic clock, in nanoseconds. */
uint64_t patience_now(void);
/* PATIENCE from now. */
uint64_t patience_end(void);
/* Lets other threads run; after the end it fails the case with what it waited for. */
void patience_wait(uint64_t end, const char *what);
