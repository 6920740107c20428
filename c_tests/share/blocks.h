// SPDX-License-Identifier: Apache-2.0
// Layouts in any memory, written and checked block by block against a model.
#pragma once

#include "harness.h"
#include "memory.h"

/* A geometry whose pieces are whole pages, so that files can be used. */
kvmem_layout_config blocks_config(const kv_kind *kind);

/* In one allocation, or in a region per layer or block. Elastic memory is always in one. */
typedef enum blocks_placement { BLOCKS_TOGETHER, BLOCKS_APART } blocks_placement;

/* A shareable layout; with an agent, registered. In elastic memory all blocks are committed, four per extent
   if a block contains all layers. */
kvmem_layout *blocks_build(memory_kind memory, const kvmem_layout_config *config, blocks_placement placement,
                           kvmem_agent *agent);

/* Writes or checks every block of a layout, and the bytes after the last block of each region, by the
   model. */
void blocks_write(const kvmem_layout *layout, const kv_side *model);
void blocks_check(const kvmem_layout *layout, const kv_side *model);
