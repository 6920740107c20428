// SPDX-License-Identifier: Apache-2.0
// What the victim, another process, has and uses, as the kernel counts it.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct resources {
    size_t files, threads;
    uint64_t bytes; /* memory of its own and memory that it shares */
} resources;

resources count_resources(pid_t process);
void extend_resources(resources *most, const resources *now);

/* Nanoseconds of processor time, in steps of the kernel's clock tick, of all threads that a process has or had; of one thread, if that
   is not 0. It is 0 of what does not exist. */
uint64_t processor_time(pid_t process, pid_t thread);
/* Nanoseconds that its threads could have run and had no processor. */
uint64_t processor_wait(pid_t process);
