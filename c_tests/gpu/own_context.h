// SPDX-License-Identifier: Apache-2.0
// Memory that goes with its context: the library's on a device that is reset, and an engine's in a context
// that it has made for itself and destroys.
#pragma once

#include "cuda_types.h"
#include "harness.h"

/* What is said of memory that is gone. */
extern const char *const gone;

void reset_device(int device);

/* Memory in a context of the engine's own, adopted layer by layer with note_release. */
typedef struct own_context {
    CUcontext context;
    CUdeviceptr address;
    kvmem_region *regions[8];
    size_t num_regions;
    kvmem_layout *layout;
} own_context;

void own_context_open(own_context *own, const kvmem_layout_config *config);
/* Destroys the context, with its memory, before the rest. */
void own_context_destroy(own_context *own);
/* Destroys the handles, waits for the releases, and destroys the context if it is still there. */
void own_context_close(own_context *own);
