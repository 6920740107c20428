// SPDX-License-Identifier: Apache-2.0
// Elastic layouts, and those that are a side of transfers: their blocks lie far apart, and some may be
// without memory.
#pragma once

#include "sides.h"

/* The alignment of blocks in the model of an elastic side. */
#define ELASTIC_MODEL_ALIGNMENT 4096

/* Built without memory; with an agent, registered. */
kvmem_layout *elastic_layout(const kvmem_layout_config *config, int device, kvmem_agent *agent);
/* Options for a layout whose regions are parts of it, one behind the other from an offset on. */
typedef struct elastic_parts {
    kvmem_layout_options options;
    kvmem_region *views[8];
} elastic_parts;
void elastic_parts_open(elastic_parts *parts, const kvmem_layout_config *config, kvmem_region *region,
                        uint64_t offset);
void elastic_parts_close(elastic_parts *parts);

/* What all of its regions have together. */
kvmem_elastic_info elastic_layout_memory(const kvmem_layout *layout);

/* For side_open. The side's place says how many blocks have memory. */
void elastic_side_open(side *side, const kvmem_layout_config *config, kvmem_agent *agent, uint32_t seed);
/* Every block that has memory, with the padding behind it: from what is expected, and into the model's
 * memory. What has none stays there as it is. */
void elastic_side_write(const side *side);
void elastic_side_read(side *side);
