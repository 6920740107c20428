// SPDX-License-Identifier: Apache-2.0
// Waiting for a condition until a deadline.
#pragma once

#include "harness.h"

/* Returns the monotonic clock in nanoseconds. */
uint64_t patience_now(void);
/* Returns the deadline: PATIENCE from now. */
uint64_t patience_end(void);
/* Yields to other threads. After the deadline it fails the case; the message contains `what`. */
void patience_wait(uint64_t end, const char *what);
