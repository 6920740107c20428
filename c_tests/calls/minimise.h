// SPDX-License-Identifier: Apache-2.0
// Fewer calls with which a sequence still fails.
#pragma once

/* Runs the sequence of settings.seed again and again in processes of its own, with fewer calls each time,
   and prints those that are needed for it to fail. Returns the exit code. */
int minimise(void);
