// SPDX-License-Identifier: Apache-2.0
// VMM memory mapped at its own addresses, with kvmem's functions.
#pragma once

#include "harness.h"

/* The handles of the range and the memory are destroyed; the mapping keeps both alive. */
typedef struct mapped {
    kvmem_vmm_mapping *mapping;
    uint64_t address;
} mapped;

/* Maps the memory, and destroys its handle. */
mapped map_memory(kvmem_vmm_memory *memory, int device, uint64_t size, uint32_t access);
void unmap_memory(const mapped *mapped);
/* The same until the scope ends: `MAPPED(here, memory, device, size, KVMEM_ACCESS_READ);`. */
#define MAPPED(name, ...) CLEANUP(unmap_memory) const mapped name = map_memory(__VA_ARGS__)
