// SPDX-License-Identifier: Apache-2.0
// One sequence: its calls, on one thread or several, the end of all handles, and the check that nothing is
// left.
#pragma once

#include "harness.h"

void sequence_run(uint64_t seed);
/* After the last sequence: threads that have no work end, too. */
void sequence_check_threads(void);
/* Prints the running call if the process crashes or hangs. */
void sequence_catch_crashes(void);
