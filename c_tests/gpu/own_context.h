// SPDX-License-Identifier: Apache-2.0
// Memory that is destroyed with its context: kvmem's memory on a device that is reset, and an engine's memory
// in a context that the engine creates and destroys.
#pragma once

#include "cuda_types.h"
#include "harness.h"

/* Part of the message for memory whose context was destroyed. */
extern const char *const context_destroyed;

void reset_device(int device);

/* Memory in a context of the engine, adopted layer by layer with note_release. */
typedef struct own_context {
    CUcontext context;
    CUdeviceptr address;
    kvmem_region *regions[8];
    size_t num_regions;
    kvmem_layout *layout;
} own_context;

void own_context_open(own_context *own, const kvmem_layout_config *config);
/* Destroys the context with its memory. */
void own_context_destroy(own_context *own);
/* Destroys the handles, waits for the releases, and destroys the context unless it is destroyed already. */
void own_context_close(own_context *own);
