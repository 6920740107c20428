// SPDX-License-Identifier: Apache-2.0
// Layouts in any memory, block by block against the model.
#pragma once

#include "harness.h"
#include "memory.h"

/* A geometry whose pieces are whole pages, so that files take them. */
kvmem_layout_config blocks_config(const kv_kind *kind);

/* In one allocation, or in a region for each of the layout's, which elastic memory can't be. */
typedef enum blocks_lie { BLOCKS_TOGETHER, BLOCKS_APART } blocks_lie;

/* A shareable layout; with an agent, registered. In elastic memory all blocks have some, four to an
   extent where a block holds all layers. */
kvmem_layout *blocks_build(memory_kind memory, const kvmem_layout_config *config, blocks_lie lie,
                           kvmem_agent *agent);

/* Every block of a layout, and what lies behind the last in its regions: written from what the model expects,
   and compared with that. */
void blocks_write(const kvmem_layout *layout, const kv_side *model);
void blocks_check(const kvmem_layout *layout, const kv_side *model);
