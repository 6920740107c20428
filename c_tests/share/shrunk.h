// SPDX-License-Identifier: Apache-2.0
// A layout on another process's elastic memory, and transfers out of it that may find that taken back.
#pragma once

#include "exchange.h"

/* Blocks 0 to 3 lie in the first extent, 4 to 6 in the second. */
typedef exchange shrunk;

/* The owner shares it with so many blocks. */
void shrunk_open(shrunk *shrunk, uint64_t num_blocks);
void shrunk_close(shrunk *shrunk);

/* A transfer of one block from `from`, made but not run. */
kvmem_transfer *shrunk_transfer(const shrunk *shrunk, const kvmem_layout *from, uint32_t block);
/* Submits and waits; answers the first status that is not OK. With the error slot. */
kvmem_status shrunk_run(kvmem_transfer *transfer);
/* Makes, runs and destroys one, and checks the bytes where it went well. */
kvmem_status shrunk_fetch(shrunk *shrunk, const kvmem_layout *from, uint32_t block);
