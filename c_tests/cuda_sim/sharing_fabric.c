// SPDX-License-Identifier: Apache-2.0
// Fabric handles, enabled by a test or by KVMEM_SIM_FABRIC=1 in the environment.
#include "sharing_fabric.h"

#include "call.h"
#include "cuda_sim.h"
#include "foreign_file.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC UINT64_C(0x6d69732d62616676)

/* The contents of the 64 bytes. */
typedef struct fabric_name {
    uint64_t magic;
    foreign_file file;
} fabric_name;
_Static_assert(sizeof(fabric_name) <= sizeof(CUmemFabricHandle), "a fabric handle has 64 bytes");

static enum { FROM_ENVIRONMENT, PERMITTED, NOT_PERMITTED } setting;

bool fabric_is_permitted(void) {
    const char *value = getenv("KVMEM_SIM_FABRIC");
    return setting == PERMITTED || (setting == FROM_ENVIRONMENT && value != NULL && strcmp(value, "1") == 0);
}

void fabric_reset(void) { setting = FROM_ENVIRONMENT; }

void sim_set_fabric(bool is_permitted) {
    LOCKED;
    setting = is_permitted ? PERMITTED : NOT_PERMITTED;
}

CUresult fabric_export(const memory *exported, void *handle) {
    RETURN_IF(!fabric_is_permitted(), CUDA_ERROR_NOT_PERMITTED);
    const fabric_name name = {.magic = MAGIC, .file = foreign_file_of(exported->fd)};
    memset(handle, 0, sizeof(CUmemFabricHandle));
    memcpy(handle, &name, sizeof(name));
    return CUDA_SUCCESS;
}

/* A handle of memory that no longer exists is invalid. */
CUresult fabric_open(const void *handle, int *fd) {
    RETURN_IF(!fabric_is_permitted(), CUDA_ERROR_NOT_PERMITTED);
    fabric_name name;
    memcpy(&name, handle, sizeof(name));
    *fd = name.magic == MAGIC ? foreign_file_open(&name.file) : -1;
    return *fd >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
