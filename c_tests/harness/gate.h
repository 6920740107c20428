// SPDX-License-Identifier: Apache-2.0
// Pages that stop every thread that accesses them: a copy that reaches them is in flight until the test opens
// the gate.
#pragma once

#include <stddef.h>

/* Closes `size` bytes of pages; `pages` is page-aligned. A process has one gate at a time. */
void gate_close(void *pages, size_t size);
/* Waits until a thread has stopped at the gate. */
void gate_await(void);
/* Lets all threads continue. */
void gate_open(void);
