// SPDX-License-Identifier: Apache-2.0
// Runs of a transfer with a peer after the first ones: the library allocates no memory for them, on any thread. What NIXL
// allocates for a request is not counted. This program's malloc counts the calls that come from the library.
#include "harness.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>

KV_PEER_ROLE

#define NUM_BLOCKS 500
/* Memory is used again from run to run, but some of it is only needed if many chunks are in flight at a time. */
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

/* Counts from here on. */
static void find_library(void) {
    void *function = dlsym(RTLD_DEFAULT, "kvmem_transfer_submit");
    CHECK(function != NULL);
    CHECK_EQ(dl_iterate_phdr(find_code, function), 1);
}

/* The library allocates when it creates a transfer, and not when it runs one again. */
static void check_repeats(const kvmem_layout *source, const kvmem_layout *destination,
                          const kvmem_transfer_options *options, uint32_t path) {
    const unsigned before = allocations;
    OWN(kvmem_transfer, transfer, kvmem_transfer_create, source, destination, options);
    CHECK(allocations > before); /* they are counted */
    for (int i = 0; i < FIRST_RUNS; i++) RUN(transfer);
    GET(kvmem_transfer_info, info, kvmem_transfer_get_info, transfer);
    CHECK_EQ(info.path, path);
    int runs_without = 0;
    for (int i = 0; i < RUNS; i++) {
        const unsigned first = allocations;
        RUN(transfer);
        runs_without += allocations == first;
    }
    printf("path %u: %d of %d runs without an allocation\n", path, runs_without, RUNS);
    CHECK(runs_without > RUNS / 2);
}

static kvmem_block_pair backwards[NUM_BLOCKS];
static const kv_move all_layers = {backwards, NUM_BLOCKS, 0, 0, 3};

static kvmem_layout_config config_of(const kv_kind *kind) {
    return WITH(kv_config(kind), it.num_blocks = NUM_BLOCKS, it.inner_dim = 64);
}

/* With an arena of `arena_size`, in both directions. */
static void check_paths(uint64_t arena_size) {
    kv_meeting meeting;
    const kvmem_serve_options serve =
        OPTIONS(kvmem_serve_options, it.flags = KVMEM_SERVE_WRITE, it.arena_size = arena_size);
    for (uint32_t i = 0; i < NUM_BLOCKS; i++) backwards[i] = (kvmem_block_pair){i, NUM_BLOCKS - 1 - i};
    kv_meeting_open_served(&meeting, "near", "far", REF(config_of(&kv_kinds[1])),
                           REF(config_of(&kv_kinds[0])), &serve);
    const kvmem_layout *near = meeting.side.layout, *far = meeting.peer.model.layout;
    find_library();
#define CHECK_PATH(direction, from, to)                                                              \
    check_repeats(from, to,                                                                          \
                  KV_OPTIONS(&all_layers, it.path = KVMEM_PATH_NIXL_##direction, it.staging_size = arena_size), \
                  KVMEM_PATH_NIXL_##direction)
    CHECK_PATH(READ, far, near);
    CHECK_PATH(WRITE, near, far);
    CHECK_PATH(READ_STAGED, far, near);
    CHECK_PATH(WRITE_STAGED, near, far);
    CHECK_PATH(READ_SERVED, far, near);
    CHECK_PATH(WRITE_SERVED, near, far);
    kv_meeting_close(&meeting);
}

TEST(runs_of_one_chunk_allocate_nothing) { check_paths(0); }

TEST(runs_of_many_chunks_allocate_nothing) { check_paths(8 * 64 * 4096); }
