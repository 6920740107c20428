// SPDX-License-Identifier: Apache-2.0
// A layout that a peer owns and shares, and a layout of this process. Blocks move in both directions.
#pragma once

#include "holder.h"

typedef struct exchange {
    kvmem_layout_config config;
    peer owner;
    parcel parcel;
    kv_side there; /* what the owner's blocks must be */
    kv_side here;  /* what the blocks of this process must be */
    kvmem_layout *own;
    kvmem_layout *mapped; /* the owner's layout as it is open here; NULL until the test opens it */
} exchange;

/* Options of the two layouts. Both have a blocks_config; the default is fully contiguous system memory. */
typedef struct exchange_options {
    memory_kind there;
    memory_kind here;
    size_t layout_kind;
    blocks_placement placement;            /* of the owner's layout */
    const char *agent_there;   /* the name of the agent that it is registered with, or NULL */
    kvmem_agent *agent;        /* the agent of this process, or NULL */
    uint64_t num_blocks;       /* committed blocks of elastic memory of the owner; 0: all */
    const kvmem_share_options *options;
} exchange_options;
/* The owner must have no memory yet. */
void exchange_open(exchange *exchange, peer owner, const exchange_options *setup);
/* Frees all but the owner. */
void exchange_close(exchange *exchange);
/* Moves blocks to the layout of this process or from it, and updates the models. Returns the info of the
   transfer. */
kvmem_transfer_info exchange_pull(exchange *exchange, const kvmem_layout *theirs, const kv_move *move,
                                  uint32_t path);
kvmem_transfer_info exchange_push(exchange *exchange, const kvmem_layout *theirs, const kv_move *move,
                                  uint32_t path);
/* Checks all blocks against the models: as the owner sees its own, and as this process sees both. */
void exchange_check(const exchange *exchange);
