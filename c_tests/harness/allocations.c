// SPDX-License-Identifier: Apache-2.0
#include "allocations.h"

#include "harness.h"

#include <dlfcn.h>
#include <link.h>
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

static int find_code(struct dl_phdr_info *object, size_t size, void *of) {
    (void)size;
    for (size_t i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        const uintptr_t start = object->dlpi_addr + part->p_vaddr, address = (uintptr_t)of;
        if (part->p_type != PT_LOAD || address < start || address >= start + part->p_memsz) continue;
        library_start = start;
        library_end = start + part->p_memsz;
        return 1;
    }
    return 0;
}

void allocations_count(void) {
    void *function = dlsym(RTLD_DEFAULT, "kvmem_transfer_submit");
    CHECK(function != NULL);
    CHECK_EQ(dl_iterate_phdr(find_code, function), 1);
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
