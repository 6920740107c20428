// SPDX-License-Identifier: Apache-2.0
// Elastic layouts, also as sides of transfers. Their blocks are far apart, and some may have no memory.
#pragma once

#include "sides.h"

/* The alignment of blocks in the model of an elastic side. */
#define ELASTIC_MODEL_ALIGNMENT 4096

/* Builds an elastic layout without memory, registered if there is an agent. */
kvmem_layout *elastic_layout(const kvmem_layout_config *config, int device, kvmem_agent *agent);
/* Options for a layout whose regions are adjacent views of an elastic region, from an offset on. */
typedef struct elastic_parts {
    kvmem_layout_options options;
    kvmem_region *views[8];
} elastic_parts;
void elastic_parts_open(elastic_parts *parts, const kvmem_layout_config *config, kvmem_region *region,
                        uint64_t offset);
void elastic_parts_close(elastic_parts *parts);

/* Returns the elastic info of the region of an elastic layout. */
kvmem_region_info elastic_layout_memory(const kvmem_layout *layout);

/* For side_open. The side's place determines how many blocks have memory. */
void elastic_side_open(side *side, const kvmem_layout_config *config, kvmem_agent *agent, uint32_t seed);
/* Write the expected bytes of the model to every block that has memory, and read them into the memory of the
 * model; both include the padding after each block. Other blocks of the model are unchanged. */
void elastic_side_write(const side *side);
void elastic_side_read(side *side);
