// SPDX-License-Identifier: Apache-2.0
// Layouts of objects, the moves between them and host memory, and a model of what the objects contain.
#pragma once

#include "object_store.h"

extern const kvmem_block_pair out_pairs[5], back_pairs[3];
/* To the objects, from them, and from them without the first layer. */
extern const kv_move out, back, part_back;

/* An agent with a backend for the store, which runs. */
kvmem_agent *store_agent(const char *name);
kvmem_region *name_objects(const char *prefix, uint64_t object_size, uint64_t count);
kvmem_layout_config block_config(void);
/* A layout with one object per block, or per part of a block of that size. */
kvmem_layout *lay_out_parts(const char *prefix, uint64_t object_size, kvmem_agent *agent);
kvmem_layout *lay_out(const char *prefix, kvmem_agent *agent);

/* What the objects must hold, computed without them. */
typedef struct model {
    kv_side side;
} model;

void model_open(model *model);
void model_close(model *model);
