// SPDX-License-Identifier: Apache-2.0
// The table of address ranges.
#include "spans.h"

#include "memory.h"

#include <search.h>
#include <sys/mman.h>
#include <unistd.h>

/* A tree of the ranges in which no two overlap, by their addresses: a program may register memory in a million
   pieces, and the kernels look for each row. */
static void *index_of_spans;
/* Ranges that are not in it. They overlap another one, whose memory the program has unmapped meanwhile. */
static size_t num_unindexed;

/* Ranges that overlap are equal. */
static int compare(const void *one, const void *other) {
    const span *a = one, *b = other;
    return a->start + a->size <= b->start ? -1 : b->start + b->size <= a->start;
}

static void index_add(const span *added) {
    const span *const *const found = tsearch(added, &index_of_spans, compare);
    if (found == NULL) sim_crash("no memory for the stand-in itself");
    num_unindexed += *found != added;
}

static void index_remove(const span *ended) {
    const span *const *const found = tfind(ended, &index_of_spans, compare);
    if (found != NULL && *found == ended) tdelete(ended, &index_of_spans, compare);
    else num_unindexed--;
}

span *span_add(span_kind kind, CUdeviceptr start, size_t size, memory *backing, context *owner) {
    span *added = list_add(&sim.spans, sizeof(*added));
    added->kind = kind;
    added->start = start;
    added->size = size;
    added->memory = backing;
    added->context = owner;
    added->buffer = next_number();
    index_add(added);
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
    index_remove(ended);
    list_remove(&ended->node);
    if (backing != NULL) {
        backing->spans--;
        memory_destroy_if_unused(backing);
    }
}

span *span_within(CUdeviceptr start, size_t size) {
    if (num_unindexed == 0) {
        const span wanted = {.start = start, .size = size};
        span *const *const found = tfind(&wanted, &index_of_spans, compare);
        return found == NULL ? NULL : *found;
    }
    EACH(span, known, sim.spans) {
        if (span_overlaps(known, start, size)) return known;
    }
    return NULL;
}

span *span_at(CUdeviceptr address) { return span_within(address, 1); }

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
