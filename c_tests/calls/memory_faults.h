// SPDX-License-Identifier: Apache-2.0
// Memory that the kernel refuses to the library while one call runs: mappings, memory files and their size, and io_uring.
// Small allocations of the heap are not among them: in Rust, one that fails ends the process.
#pragma once

#include "fuzz.h"

/* Before the library starts a thread: only this thread, and those that it starts, are watched. */
void memory_faults_watch(void);
/* Plans which of the next requests the kernel refuses. */
void memory_faults_plan(fuzz *fuzz);
/* Forgets it. */
void memory_faults_forget(void);
/* Requests that were refused. */
uint64_t memory_faults_refused(void);
/* Whether an address is in the library. */
bool is_in_library(const void *address);
