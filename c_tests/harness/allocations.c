// SPDX-License-Identifier: Apache-2.0
#include "allocations.h"

#include "harness.h"
#include "library_code.h"

#include <stdatomic.h>

/* Memory is reused from run to run. Some of it is allocated only when much is in flight at a time. */
#define FIRST_RUNS 20
#define RUNS 50

static _Atomic uintptr_t library_start, library_end;
static atomic_uint allocations;

static void count(const void *caller) {
    if ((uintptr_t)caller >= library_start && (uintptr_t)caller < library_end) allocations++;
}

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t number, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

void *malloc(size_t size) {
    count(__builtin_return_address(0));
    return __libc_malloc(size);
}

void *calloc(size_t number, size_t size) {
    count(__builtin_return_address(0));
    return __libc_calloc(number, size);
}

void *realloc(void *memory, size_t size) {
    count(__builtin_return_address(0));
    return __libc_realloc(memory, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size) {
    count(__builtin_return_address(0));
    *memory = __libc_memalign(alignment, size);
    return *memory == NULL ? ENOMEM : 0;
}

void *aligned_alloc(size_t alignment, size_t size) {
    count(__builtin_return_address(0));
    return __libc_memalign(alignment, size);
}

void allocations_count(void) {
    const library_code code = library_code_find();
    library_end = code.end;
    library_start = code.start;
}

unsigned allocations_counted(void) { return allocations; }

void check_repeats(kvmem_transfer *transfer, const char *what) {
    for (int i = 0; i < FIRST_RUNS; i++) RUN(transfer);
    int runs_without = 0;
    for (int i = 0; i < RUNS; i++) {
        const unsigned first = allocations;
        RUN(transfer);
        runs_without += allocations == first;
    }
    printf("%s: %d of %d runs without an allocation\n", what, runs_without, RUNS);
    CHECK(runs_without > RUNS / 2);
}
