// SPDX-License-Identifier: Apache-2.0
// Memory at addresses of its own, by the library's steps.
#pragma once

#include "harness.h"

/* The handles of the range and the memory are given up: the mapping holds both. */
typedef struct mapped {
    kvmem_vmm_mapping *mapping;
    uint64_t address;
} mapped;

/* Takes the memory over. */
mapped map_memory(kvmem_vmm_memory *memory, int device, uint64_t size, uint32_t access);
void unmap_memory(const mapped *mapped);
/* The same until the scope ends: `MAPPED(here, memory, device, size, KVMEM_ACCESS_READ);`. */
#define MAPPED(name, ...) CLEANUP(unmap_memory) const mapped name = map_memory(__VA_ARGS__)
