// SPDX-License-Identifier: Apache-2.0
// Memory that an engine owns, allocated with the driver.
#pragma once

#include "cuda_types.h"
#include "harness.h"

/* Allocates memory with cuMemAlloc. */
uint64_t engine_allocate(int device, uint64_t size);
void engine_free(int device, uint64_t address);
/* The same until the scope ends: `ENGINE_MEMORY(address, 0, MIB);` defines a const uint64_t. */
#define ENGINE_MEMORY(name, device, size)                                                            \
    CLEANUP(engine_free_scoped) const engine_memory name##_memory = {device, engine_allocate(device, size)}; \
    const uint64_t name = name##_memory.address
typedef struct engine_memory {
    int device;
    uint64_t address;
} engine_memory;
void engine_free_scoped(const engine_memory *memory);
/* Instead of engine_free if a reset of the device has freed the memory. */
void engine_forget_lost(int device);

/* Allocates page-locked host memory. */
void *engine_allocate_host(int device, uint64_t size);
void engine_free_host(int device, void *address);

/* Host memory of whole pages that the engine page-locks in parts, as engines do with large pools. Part i is
   the pages from starts[i] up to, not including, ends[i]. Other pages are not page-locked. */
#define LOCKED_PARTS_MAX 8
typedef struct locked_parts {
    int device;
    unsigned char *address;
    uint64_t size;
    size_t num_parts;
    uint64_t starts[LOCKED_PARTS_MAX], ends[LOCKED_PARTS_MAX];
} locked_parts;

void locked_parts_open(locked_parts *locked_parts, int device);
/* Also after a reset of the device, which has unlocked all parts. */
void locked_parts_close(locked_parts *locked_parts);

/* Two allocations; the second starts at the end of the first. */
typedef struct adjacent {
    int device;
    uint64_t addresses[2];
    uint64_t size; /* of each */
} adjacent;

void adjacent_open(adjacent *adjacent, int device);
void adjacent_close(adjacent *adjacent);

/* Returns properties of device memory that can be exported as these CU_MEM_HANDLE_TYPE_*. */
CUmemAllocationProp properties_on(int device, unsigned handle_types);

/* Adjacent mappings of one granule each, as in an engine whose cache grows. */
#define SPAN_MAX 8
typedef struct span {
    int device; /* its primary context is retained */
    uint64_t address;
    uint64_t granule; /* bytes of one mapping */
    size_t reserved;  /* granules reserved */
    size_t mapped;    /* granules mapped, from the first on */
    unsigned handle_types; /* the memory can be exported as these */
    unsigned long long memory[SPAN_MAX];
} span;

/* Reserves addresses for `reserved` granules and maps the first `mapped`. */
void span_open(span *span, int device, size_t reserved, size_t mapped);
/* The same with memory that can be exported as these CU_MEM_HANDLE_TYPE_*. */
void span_open_exportable(span *span, int device, unsigned handle_types, size_t reserved, size_t mapped);
/* Maps one more granule, of memory of any device. */
void span_grow(span *span, int device);
void span_close(span *span);
