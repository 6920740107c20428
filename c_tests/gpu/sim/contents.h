// SPDX-License-Identifier: Apache-2.0
// What lies in every piece of a move's two layouts, before it and after it: written and read past the driver,
// so that none of its calls is counted or fails.
#pragma once

#include "harness.h"

/* A move between two layouts, or within one. */
typedef struct contents {
    const kvmem_layout *source;
    const kvmem_layout *destination;
    const kv_move *move; /* of the same layers on both sides */
    uint64_t num_blocks; /* of either that have memory, from the first on */
} contents;

/* Every piece gets a value of its own, on each side another. */
void contents_fill(const contents *contents);
/* What was moved has the source's value, all else its own. */
void contents_check_moved(const contents *contents);
/* Of a block of a layout that was filled as both sides of one move. */
uint32_t contents_checksum(const kvmem_layout *layout, uint64_t block);
