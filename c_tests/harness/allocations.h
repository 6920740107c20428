// SPDX-License-Identifier: Apache-2.0
// Replaces malloc by one that counts the calls that come from the library, on any thread. Not a part of the harness's
// library: a program that counts compiles allocations.c itself.
#pragma once

#include <kvmem.h>

/* Counts from here on. */
void allocations_count(void);
unsigned allocations_counted(void);
/* Runs of a transfer after the first ones allocate nothing. */
void check_repeats(kvmem_transfer *transfer, const char *what);
