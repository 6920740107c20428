// SPDX-License-Identifier: Apache-2.0
// A layout in elastic memory of a peer, and transfers out of it, which may find extents decommitted.
#pragma once

#include "exchange.h"

/* Blocks 0 to 3 are located in the first extent, 4 to 6 in the second. */
typedef exchange elastic_pair;

/* The owner shares it with this number of committed blocks. */
void elastic_pair_open(elastic_pair *elastic_pair, uint64_t num_blocks);
void elastic_pair_close(elastic_pair *elastic_pair);

/* Creates a transfer of one block from `from`. */
kvmem_transfer *elastic_pair_transfer(const elastic_pair *elastic_pair, const kvmem_layout *from,
                                      uint32_t block);
/* Submits and waits; returns the first status that is not OK. Sets the error slot. */
kvmem_status elastic_pair_run(kvmem_transfer *transfer);
/* Creates, runs and destroys a transfer, and checks the bytes if it succeeds. */
kvmem_status elastic_pair_fetch(elastic_pair *elastic_pair, const kvmem_layout *from, uint32_t block);
