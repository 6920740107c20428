// SPDX-License-Identifier: Apache-2.0
// Finds fewer calls with which a sequence still fails.
#pragma once

/* Runs the sequence of settings.seed repeatedly in new processes, with fewer calls each time, and prints the
   calls that are needed for the failure. Returns the exit code. */
int minimise(void);
