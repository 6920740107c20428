// SPDX-License-Identifier: Apache-2.0
// Memory that an engine owns, made with the driver alone.
#pragma once

#include "cuda_types.h"
#include "harness.h"

/* Plain memory of a device. */
uint64_t engine_allocate(int device, uint64_t size);
void engine_free(int device, uint64_t address);
/* The same until the scope ends: `ENGINE_MEMORY(address, 0, MIB);` is a const uint64_t. */
#define ENGINE_MEMORY(name, device, size)                                                            \
    CLEANUP(engine_free_scoped) const engine_memory name##_memory = {device, engine_allocate(device, size)}; \
    const uint64_t name = name##_memory.address
typedef struct engine_memory {
    int device;
    uint64_t address;
} engine_memory;
void engine_free_scoped(const engine_memory *memory);
/* In place of the free where a reset of the device has freed it. */
void engine_free_lost(int device);

/* Page-locked host memory. */
void *engine_allocate_host(int device, uint64_t size);
void engine_free_host(int device, void *address);

/* Host memory of whole pages that the engine page-locks piece by piece, as large pools are: piece i begins
   with page starts[i] and ends with the page before ends[i]. What lies in no piece is not page-locked. */
#define PIECES_MAX 8
typedef struct pieces {
    int device;
    unsigned char *address;
    uint64_t size;
    size_t num_pieces;
    uint64_t starts[PIECES_MAX], ends[PIECES_MAX];
} pieces;

void pieces_open(pieces *pieces, int device);
/* Also after a reset of the device, which has unlocked all of them. */
void pieces_close(pieces *pieces);

/* Two allocations, of which the second begins where the first ends. */
typedef struct adjacent {
    int device;
    uint64_t addresses[2];
    uint64_t size; /* of each */
} adjacent;

void adjacent_open(adjacent *adjacent, int device);
void adjacent_close(adjacent *adjacent);

/* Of memory of a device that can be exported by these CU_MEM_HANDLE_TYPE_*. */
CUmemAllocationProp properties_on(int device, unsigned handle_types);

/* Addresses with memory mapped side by side, each mapping one granule, as a growing engine has it. */
#define SPAN_MAX 8
typedef struct span {
    int device; /* whose context is kept */
    uint64_t address;
    uint64_t granule; /* bytes of one mapping */
    size_t reserved;  /* granules reserved */
    size_t mapped;    /* granules mapped, from the first on */
    unsigned handle_types; /* by which its memory can be exported */
    unsigned long long memory[SPAN_MAX];
} span;

/* Reserves addresses for `reserved` granules and maps the first `mapped`; the rest stays a hole. */
void span_open(span *span, int device, size_t reserved, size_t mapped);
/* The same of memory that can be exported by these CU_MEM_HANDLE_TYPE_*. */
void span_open_exportable(span *span, int device, unsigned handle_types, size_t reserved, size_t mapped);
/* Maps one more, of any device. */
void span_grow(span *span, int device);
void span_close(span *span);
