// SPDX-License-Identifier: Apache-2.0
// Maps memory, passes it to the library, and unmaps it in the release callback.
#include "owned.h"

#include "faults.h"

#include "driver.h"

#define NUM_PATHS 2

typedef struct adopted {
    void *address;
    uint64_t size;
    int32_t device; /* -1: host memory */
} adopted;

static _Atomic uint64_t releases_due;
static scratch directory;
static char folder[160];
static char files[NUM_PATHS][192];
static char sockets[NUM_PATHS][192];

void *owned_memory(uint64_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

void owned_memory_free(void *memory, uint64_t size) { CHECK_EQ(munmap(memory, size), 0); }

static void unmap(const adopted *memory) {
    if (memory->device < 0) {
        owned_memory_free(memory->address, memory->size);
    } else {
        faults_spare(true); /* this may be a thread of the library */
        CU_ON(memory->device, cuMemFree_v2((uint64_t)(uintptr_t)memory->address));
        faults_spare(false);
    }
}

static void release(void *user_data) {
    adopted *memory = user_data;
    unmap(memory);
    free(memory);
    atomic_fetch_sub(&releases_due, 1);
}

static kvmem_adopt_options options_of(fuzz *fuzz, adopted values) {
    adopted *memory = test_allocate(sizeof(*memory));
    *memory = values;
    atomic_fetch_add(&releases_due, 1);
    FUZZ_OPTIONS(kvmem_adopt_options, options);
    options.address = memory->address;
    options.size = memory->size;
    options.release = release;
    options.user_data = memory;
    options.struct_size = random_struct_size(fuzz, sizeof(options));
    options.flags = random_one_in(fuzz, 4) ? random_flags(fuzz, KVMEM_ADOPT_READ_ONLY) : 0;
    if (random_one_in(fuzz, 50))
        /* Never more than was mapped: the bytes after it may belong to another region, and be unmapped while
           this one uses them. */
        options.size = random_size(fuzz, options.size);
    return options;
}

kvmem_adopt_options owned_adopt_options(fuzz *fuzz) {
    const uint64_t size = 4096 * (1 + random_below(fuzz, 64));
    return options_of(fuzz, (adopted){owned_memory(size), size, -1});
}

kvmem_adopt_options owned_device_options(fuzz *fuzz, int32_t device) {
    const uint64_t size = 4096 * (1 + random_below(fuzz, 64));
    CUdeviceptr address = 0;
    CU_ON(device, cuMemAlloc_v2(&address, size));
    return options_of(fuzz, (adopted){(void *)(uintptr_t)address, size, device});
}

/* A part of a memory file that only the region keeps. The last page is outside the region. */
kvmem_adopt_memfd_options owned_file_options(fuzz *fuzz) {
    const uint64_t pages = 2 + random_below(fuzz, 64);
    FUZZ_OPTIONS(kvmem_adopt_memfd_options, options);
    options.fd = memfd_create("owned", MFD_CLOEXEC | (random_one_in(fuzz, 4) ? 0 : MFD_ALLOW_SEALING));
    CHECK(options.fd >= 0);
    CHECK_EQ(ftruncate(options.fd, (off_t)(pages * 4096)), 0);
    options.offset = random_one_in(fuzz, 20) ? random_size(fuzz, MIB) : 4096 * random_below(fuzz, 2);
    options.size = random_one_in(fuzz, 20) ? random_size(fuzz, MIB) : 4096 * (pages - 1);
    options.struct_size = random_struct_size(fuzz, sizeof(options));
    const uint64_t known = KVMEM_ADOPT_READ_ONLY | KVMEM_ADOPT_KEEP_SEALS;
    options.flags = random_one_in(fuzz, 4) ? random_flags(fuzz, known) : 0;
    return options;
}

void owned_not_adopted(const kvmem_adopt_options *options) { release(options->user_data); }

uint64_t owned_releases_due(void) { return atomic_load(&releases_due); }

const char *owned_file_path(fuzz *fuzz) { return files[random_below(fuzz, NUM_PATHS)]; }

const char *owned_folder_path(void) { return folder; }

const char *owned_socket_path(fuzz *fuzz) { return sockets[random_below(fuzz, NUM_PATHS)]; }

const char *owned_directory(void) { return directory.path; }

void owned_open(void) {
    directory = scratch_create(temporary_directory());
    for (int i = 0; i < NUM_PATHS; i++) {
        snprintf(files[i], sizeof(files[i]), "%s/file%d", directory.path, i);
        snprintf(sockets[i], sizeof(sockets[i]), "%s/socket%d", directory.path, i);
    }
    snprintf(folder, sizeof(folder), "%s/cluster", directory.path);
    CHECK_EQ(mkdir(folder, 0700), 0);
    CHECK_EQ(setenv("TMPDIR", directory.path, 1), 0);
}

void owned_remove_files(void) {
    for (int i = 0; i < NUM_PATHS; i++) unlink(files[i]);
}

void owned_close(void) {
    owned_remove_files();
    scratch_remove(&directory);
}
