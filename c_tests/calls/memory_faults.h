// SPDX-License-Identifier: Apache-2.0
// Memory requests of the library that fail during one call: mappings, memory files and their size, and
// io_uring. Small heap allocations are excluded: in Rust, one that fails aborts the process.
#pragma once

#include "fuzz.h"

/* Call this before the library starts a thread: only this thread, and threads that it starts, are watched. */
void memory_faults_watch(void);
/* Plans which of the next requests fail. */
void memory_faults_plan(fuzz *fuzz);
/* Cancels the plan. */
void memory_faults_forget(void);
/* Number of requests that failed. */
uint64_t memory_faults_refused(void);
/* Whether an address is in the library. */
bool is_in_library(const void *address);
