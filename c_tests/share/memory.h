// SPDX-License-Identifier: Apache-2.0
// Memory of every kind that can be shared, and access to its bytes.
#pragma once

#include "harness.h"

typedef enum memory_kind {
    MEMORY_SYSTEM,
    MEMORY_TRANSPARENT, /* system memory, with transparent huge pages if the kernel provides them */
    MEMORY_RESERVED,    /* the same from the reserved pool; falls back if the pool is empty */
    MEMORY_PART,        /* a part of an engine's memory file */
    MEMORY_DISK,        /* a temporary file, with direct I/O if the file system supports it */
    MEMORY_BUFFERED,    /* a temporary file through the page cache */
    MEMORY_NAMED,       /* a file with a name */
    MEMORY_PINNED,      /* a GPU is needed from here on */
    MEMORY_DEVICE,
    MEMORY_ADOPTED, /* device memory of an engine, from the middle of an allocation */
    MEMORY_MAPPED,  /* the same, from the middle of adjacent mappings made by the engine with cuMemMap */
    MEMORY_ELASTIC, /* all of it committed */
    MEMORY_FABRIC,  /* the same with fabric handles, shared by them, if the driver creates any */
    NUM_MEMORY_KINDS,
} memory_kind;

#define MEMORY_ON_HOST MEMORY_PINNED /* kinds before this one need no GPU */
/* A size that suits every kind: whole extents, and whole blocks of files. */
#define MEMORY_SIZE (UINT64_C(8) << 20)
#define MEMORY_EXTENT (UINT64_C(2) << 20)

extern const char *const memory_names[NUM_MEMORY_KINDS];
uint32_t memory_tier(memory_kind kind);
bool memory_has_fd_mapping(memory_kind kind); /* the CPU can access it */
bool memory_has_driver_fds(memory_kind kind); /* only the driver can interpret its file descriptors */
/* Read-only importers have a mapping of their own, which the driver protects from writes. */
bool memory_is_mapped_apart(memory_kind kind);
/* It is shared by a handle that keeps no memory: once the owner has freed it, the handle cannot be opened. */
bool memory_is_shared_by_handle(memory_kind kind);
/* KVMEM_SHARE_AUTO, or the transport that the kind exists for. */
uint32_t memory_transport(memory_kind kind);
/* The transport that is then selected. */
uint32_t memory_transport_found(memory_kind kind);
/* One past the last kind that this machine supports. */
memory_kind memory_end_of_kinds(void);

/* Creates a region; `path` is the file of MEMORY_NAMED. Memory of an engine lives until the process ends. */
kvmem_region *memory_create(memory_kind kind, uint64_t size, const char *path);

/* Offsets and sizes must be multiples of 4096 for files. */
void memory_write(const kvmem_region *region, uint64_t offset, const void *bytes, uint64_t size);
void memory_read(const kvmem_region *region, uint64_t offset, void *bytes, uint64_t size);
/* Fills the region with bytes of a seed. */
void memory_fill(const kvmem_region *region, uint32_t seed);
void memory_check(const kvmem_region *region, uint32_t seed);
/* Checks a part of a region that was filled as a whole. */
void memory_check_part(const kvmem_region *part, uint64_t offset, uint32_t seed);
