// SPDX-License-Identifier: Apache-2.0
// Memory that an engine owns, made with the driver alone.
#ifndef KVMEM_TEST_GPU_ENGINE_H
#define KVMEM_TEST_GPU_ENGINE_H

#include <stddef.h>
#include <stdint.h>

/* Plain memory of a device. */
uint64_t engine_allocate(int device, uint64_t size);
void engine_free(int device, uint64_t address);

/* Page-locked host memory. */
void *engine_allocate_host(int device, uint64_t size);
void engine_free_host(int device, void *address);

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

#endif
