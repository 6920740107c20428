// SPDX-License-Identifier: Apache-2.0
// The contents of every piece of a move's two layouts, before and after it. They are written and read without
// driver calls, so that nothing is counted or fails.
#pragma once

#include "harness.h"

/* A move between two layouts, or within one. */
typedef struct contents {
    const kvmem_layout *source;
    const kvmem_layout *destination;
    const kv_move *move; /* of the same layers on both sides */
    uint64_t num_blocks; /* number of blocks of both layouts that have memory, from the first on */
} contents;

/* Fills every piece with a unique value. */
void contents_fill(const contents *contents);
/* Checks that moved pieces have the value of their source, and all others their own. */
void contents_check_moved(const contents *contents);
/* Returns the checksum of a block of a layout that is source and destination. */
uint32_t contents_checksum(const kvmem_layout *layout, uint64_t block);
