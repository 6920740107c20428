// SPDX-License-Identifier: Apache-2.0
// Calls of kvmem in a process that can start no more threads.
#pragma once

#include <kvmem.h>

/* Makes the call on a thread for which the kernel fails to start another, and returns its status. Threads
   that the library has started before can still start others. */
kvmem_status without_new_threads(kvmem_status (*call)(void *context), void *context);
