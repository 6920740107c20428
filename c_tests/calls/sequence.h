// SPDX-License-Identifier: Apache-2.0
// A sequence: its calls on one or more threads, the destruction of all handles, and the check for leaks.
#pragma once

#include "harness.h"

void sequence_run(uint64_t seed);
/* After the last sequence: waits until idle threads have ended. */
void sequence_check_threads(void);
/* Prints the running call if the process crashes or hangs. */
void sequence_catch_crashes(void);
