// SPDX-License-Identifier: Apache-2.0
// What the process takes of the machine, in bytes and threads.
#ifndef KVMEM_TEST_GPU_USAGE_H
#define KVMEM_TEST_GPU_USAGE_H

#include <stddef.h>
#include <stdint.h>

uint64_t address_space(void);
uint64_t resident_memory(void);
size_t count_threads(void);

#endif
