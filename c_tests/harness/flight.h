// SPDX-License-Identifier: Apache-2.0
// A transfer between two layouts in host memory. A gate in the source can keep it in flight.
#pragma once

#include "kv.h"

#define FLIGHT_USER_DATA 42

typedef struct flight {
    kv_side source;
    kv_side destination;
    kvmem_queue *queue;
    kvmem_transfer *transfer; /* NULL once the case has destroyed it */
} flight;

/* A transfer of that move with these flags between layouts of kv_large_config, which reports to the queue
   with FLIGHT_USER_DATA. The source is fully contiguous, the destination layer separate with blocks first. */
void flight_open(flight *flight, const kv_move *move, uint64_t flags);
void flight_close(flight *flight);
/* Another transfer between its layouts, with the same queue. */
kvmem_transfer *flight_transfer(const flight *flight, const kv_move *move, uint64_t flags,
                                uint64_t user_data);
/* Submits, and returns when the copy waits at this layer of a block of the source, until gate_open. */
void flight_hold(flight *flight, uint64_t block, uint64_t layer);
/* The same at the first piece of the first block of the move, for a run that ends at its deadline, in a second. It uses its memory until
   gate_open. */
void flight_hold_late(flight *flight, const kv_move *move);
/* The next completion is that of such a run. */
void flight_expect_end(flight *flight, const kv_move *move, uint64_t user_data, kvmem_status status);
/* The same after a success, and every byte was moved. */
void flight_expect_moved(flight *flight, const kv_move *move, uint64_t user_data);
/* The queue has no other completion. */
void flight_expect_none(const flight *flight);
