// SPDX-License-Identifier: Apache-2.0
// The table of address ranges.
#include "spans.h"

#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

span *span_add(span_kind kind, CUdeviceptr start, size_t size, memory *backing, context *owner) {
    span *added = list_add(&sim.spans, sizeof(*added));
    added->kind = kind;
    added->start = start;
    added->size = size;
    added->memory = backing;
    added->context = owner;
    added->buffer = next_number();
    if (backing != NULL) backing->spans++;
    return added;
}

/* The addresses of a reservation stay reserved; other mappings of the driver are unmapped. */
static void unmap(const span *ended) {
    void *start = (void *)(uintptr_t)ended->start;
    if (ended->kind == SPAN_MAPPING) {
        map_inaccessible(start, ended->size, -1);
    } else if (ended->kind != SPAN_REGISTRATION) {
        const size_t offset = ended->start % (size_t)sysconf(_SC_PAGESIZE);
        munmap((void *)(uintptr_t)(ended->start - offset), offset + ended->size);
    }
}

void span_remove(span *ended) {
    memory *backing = ended->memory;
    unmap(ended);
    list_remove(&sim.spans, &ended->node);
    if (backing != NULL) {
        backing->spans--;
        memory_destroy_if_unused(backing);
    }
}

span *span_at(CUdeviceptr address) {
    EACH(span, known, sim.spans) {
        if (address >= known->start && address - known->start < known->size) return known;
    }
    return NULL;
}

span *span_starting(span_kind kind, CUdeviceptr start) {
    EACH(span, known, sim.spans) {
        if (known->kind == kind && known->start == start) return known;
    }
    return NULL;
}

bool span_overlaps(const span *known, CUdeviceptr start, size_t size) {
    return known->start < start + size && start < known->start + known->size;
}

reservation *reservation_containing(CUdeviceptr start, size_t size) {
    EACH(reservation, known, sim.reservations) {
        if (start >= known->start && size <= known->size && start - known->start <= known->size - size)
            return known;
    }
    return NULL;
}

void *map_inaccessible(void *at, size_t size, int fd) {
    const int kind = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    return mmap(at, size, PROT_NONE, kind | MAP_NORESERVE | (at == NULL ? 0 : MAP_FIXED), fd, 0);
}

void *map_inaccessible_near(void *at, size_t size, int fd) {
    return mmap(at, size, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, 0);
}

bool span_is_host(const span *known) { return known->memory == NULL || known->memory->owner == NO_ORDINAL; }

CUdevice span_device(const span *known) {
    if (known->kind == SPAN_IPC && sim.ipc_ordinal_of_opener) return known->context->device;
    if (known->memory != NULL && known->memory->owner != NO_ORDINAL) return known->memory->owner;
    return known->context != NULL ? known->context->device : 0;
}

uint64_t spans_destroy_of(const context *ended) {
    uint64_t count = 0;
    EACH_TO_REMOVE(span, known, sim.spans) {
        if (known->context == ended) {
            span_remove(known);
            count++;
        }
    }
    return count;
}
