// SPDX-License-Identifier: Apache-2.0
// Counts threads of a process. Not a part of the harness's library: a program that counts compiles thread_count.c itself.
#pragma once

#include <stddef.h>
#include <sys/types.h>

/* Without threads of the library that remain for some seconds after their work, by design. */
size_t count_threads_of(pid_t process);
