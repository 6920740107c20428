// SPDX-License-Identifier: Apache-2.0
// Fabric handles, where a test or the environment has them work: KVMEM_SIM_FABRIC=1.
#include "sharing_fabric.h"

#include "call.h"
#include "cuda_sim.h"
#include "elsewhere.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC UINT64_C(0x6d69732d62616676)

/* What the 64 bytes hold. */
typedef struct fabric_name {
    uint64_t magic;
    elsewhere file;
} fabric_name;
_Static_assert(sizeof(fabric_name) <= sizeof(CUmemFabricHandle), "a fabric handle has 64 bytes");

static enum { AS_THE_ENVIRONMENT_SAYS, PERMITTED, NOT_PERMITTED } told;

bool fabric_is_permitted(void) {
    const char *said = getenv("KVMEM_SIM_FABRIC");
    return told == PERMITTED || (told == AS_THE_ENVIRONMENT_SAYS && said != NULL && strcmp(said, "1") == 0);
}

void fabric_reset(void) { told = AS_THE_ENVIRONMENT_SAYS; }

void sim_set_fabric(bool is_permitted) {
    LOCKED;
    told = is_permitted ? PERMITTED : NOT_PERMITTED;
}

CUresult fabric_export(const memory *exported, void *handle) {
    RETURN_IF(!fabric_is_permitted(), CUDA_ERROR_NOT_PERMITTED);
    const fabric_name name = {.magic = MAGIC, .file = elsewhere_of(exported->fd)};
    memset(handle, 0, sizeof(CUmemFabricHandle));
    memcpy(handle, &name, sizeof(name));
    return CUDA_SUCCESS;
}

/* Bytes that name nothing any more are no handle. */
CUresult fabric_open(const void *handle, int *fd) {
    RETURN_IF(!fabric_is_permitted(), CUDA_ERROR_NOT_PERMITTED);
    fabric_name name;
    memcpy(&name, handle, sizeof(name));
    *fd = name.magic == MAGIC ? elsewhere_open(&name.file) : -1;
    return *fd >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
