// SPDX-License-Identifier: Apache-2.0
// A layout that another process has and shares, and one of this process: blocks go both ways.
#pragma once

#include "holder.h"

typedef struct exchange {
    kvmem_layout_config config;
    peer owner;
    parcel parcel;
    kv_side there; /* what the owner's blocks must be */
    kv_side here;  /* and those of the layout of this process */
    kvmem_layout *own;
    kvmem_layout *mapped; /* the owner's, as it is open here; NULL until the test opens it */
} exchange;

/* What the layouts are: both of blocks_config, fully contiguous system memory unless said. */
typedef struct exchange_terms {
    memory_kind there;
    memory_kind here;
    size_t layout_kind;
    blocks_lie lie;            /* there */
    const char *agent_there;   /* the name of the agent that it is registered with, or NULL */
    kvmem_agent *agent;        /* that of this process, or NULL */
    uint64_t num_blocks;       /* of elastic memory there; 0 for all */
    const kvmem_share_options *options;
} exchange_terms;
/* The owner has nothing yet. */
void exchange_open(exchange *exchange, peer owner, const exchange_terms *terms);
/* All but the owner. */
void exchange_close(exchange *exchange);
/* Blocks go to the layout of this process, or come from it; the models follow. Returns the info of the
 * transfer. */
kvmem_transfer_info exchange_take(exchange *exchange, const kvmem_layout *theirs, const kv_move *move,
                                  uint32_t path);
kvmem_transfer_info exchange_give(exchange *exchange, const kvmem_layout *theirs, const kv_move *move,
                                  uint32_t path);
/* All blocks are what the models say: as the owner sees its own, and as this process does. */
void exchange_check(const exchange *exchange);
