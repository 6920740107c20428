// SPDX-License-Identifier: Apache-2.0
// Replaces malloc by one that counts the calls from the library, on any thread. Not a part of the harness's
// library: a program that counts compiles allocations.c itself.
#pragma once

#include <kvmem.h>

/* Starts counting. */
void allocations_count(void);
unsigned allocations_counted(void);
/* Checks that runs of a transfer after the first ones allocate nothing. */
void check_repeats(kvmem_transfer *transfer, const char *what);
