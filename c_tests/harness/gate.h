// SPDX-License-Identifier: Apache-2.0
// Pages that hold whoever touches them: a copy that reaches them is in flight until the test opens the gate.
#pragma once

#include <stddef.h>

/* Closes the pages that begin at `pages`, which is page-aligned; one gate at a time in a process. */
void gate_close(void *pages, size_t size);
/* Returns once a thread stands at the gate. */
void gate_await(void);
/* Lets all through, as if nothing had been. */
void gate_open(void);
