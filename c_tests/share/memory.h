// SPDX-License-Identifier: Apache-2.0
// Memory of every kind that can be shared, and its bytes, wherever they lie.
#pragma once

#include "harness.h"

typedef enum memory_kind {
    MEMORY_SYSTEM,
    MEMORY_TRANSPARENT, /* system memory, huge pages where the kernel likes */
    MEMORY_RESERVED,    /* the same from the reserved pool; falls back where that is empty */
    MEMORY_PART,        /* a part of a memory file of the engine's */
    MEMORY_DISK,        /* a temporary file, past the page cache where the file system can */
    MEMORY_BUFFERED,    /* a temporary file through the page cache */
    MEMORY_NAMED,       /* a file with a name */
    MEMORY_PINNED,      /* from here on a GPU is needed */
    MEMORY_DEVICE,
    MEMORY_ADOPTED, /* device memory of the engine's, from the middle of an allocation */
    MEMORY_MAPPED,  /* the same, from the middle of mappings side by side that the engine has made */
    MEMORY_ELASTIC, /* all of it committed */
    MEMORY_FABRIC,  /* the same with fabric handles, shared by them: where the driver gives any */
    NUM_MEMORY_KINDS,
} memory_kind;

#define MEMORY_ON_HOST MEMORY_PINNED /* kinds below need no GPU */
/* Bytes that suit every kind: whole extents, whole blocks of files. */
#define MEMORY_SIZE (UINT64_C(8) << 20)
#define MEMORY_EXTENT (UINT64_C(2) << 20)

extern const char *const memory_names[NUM_MEMORY_KINDS];
uint32_t memory_tier(memory_kind kind);
bool memory_has_fd_mapping(memory_kind kind); /* the CPU sees it */
bool memory_has_driver_fds(memory_kind kind); /* only the driver knows what its file descriptors are */
/* Mapped apart, with an access of its own: the driver keeps whoever may only read from writing. */
bool memory_is_mapped_apart(memory_kind kind);
/* It goes by a handle that keeps nothing: whoever comes late finds nothing. */
bool memory_goes_by_handle(memory_kind kind);
/* KVMEM_SHARE_AUTO, or the way that the kind is there for. */
uint32_t memory_way(memory_kind kind);
/* The way that the kind then goes. */
uint32_t memory_way_found(memory_kind kind);
/* One past the last kind that this machine has. */
memory_kind memory_end_of_kinds(void);

/* A region; `path` is the file of MEMORY_NAMED. Memory of the engine's lives as long as the process. */
kvmem_region *memory_create(memory_kind kind, uint64_t size, const char *path);

/* Offsets and sizes must be multiples of 4096 for files. */
void memory_write(const kvmem_region *region, uint64_t offset, const void *bytes, uint64_t size);
void memory_read(const kvmem_region *region, uint64_t offset, void *bytes, uint64_t size);
/* Bytes of a seed. */
void memory_fill(const kvmem_region *region, uint32_t seed);
void memory_check(const kvmem_region *region, uint32_t seed);
/* Of a part of a region that was filled whole. */
void memory_check_part(const kvmem_region *part, uint64_t offset, uint32_t seed);
