// SPDX-License-Identifier: Apache-2.0
// Calls of kvmem where no thread can be started, as in a process at its limit.
#pragma once

#include <kvmem.h>

/* Makes the call on a thread for which the kernel refuses to start another, and returns its status.
   Threads that the library has started before can still start others. */
kvmem_status without_new_threads(kvmem_status (*call)(void *context), void *context);
