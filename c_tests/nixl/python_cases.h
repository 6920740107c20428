// SPDX-License-Identifier: Apache-2.0
// Cases with NIXL's Python client as a peer, which does not use kvmem: metadata, blocks and notifications in
// both directions, with prepared lists. The program defines the memory of both sides.
#pragma once

#include "harness.h"

typedef struct python_memory {
    /* The name for the client, and the memory type here. */
    const char *name;
    uint32_t type;
    kvmem_status (*create)(uint64_t size, kvmem_region **region, kvmem_error **error);
    void (*write)(uint64_t to, const void *from, size_t size);
    void (*read)(void *to, uint64_t from, size_t size);
    /* The Python package that the client allocates with. */
    const char *package;
} python_memory;

/* Defined by the program. */
extern const python_memory python_memory_of_both;
/* What this machine lacks for the client, as the reason to skip the cases, or NULL. */
const char *python_lacks_client(void);
