// SPDX-License-Identifier: Apache-2.0
// Completions of a queue, and transfers that are waited for.
#pragma once

#include <kvmem.h>

/* Waits for the next completion, and reads no other. */
kvmem_completion next_completion(kvmem_queue *queue);

/* Waits for the next completion, which must report that the memory of the run with this user_data is
   released; with BUSY: that nothing will detect when. */
void expect_release(kvmem_queue *queue, uint64_t user_data, kvmem_status status);

/* Takes the completions of a run by layer up to its end, which it returns: the layers ascend in steps of
   `each`, and the last number is `all`, which have moved. */
kvmem_completion end_after_layers(kvmem_queue *queue, uint64_t each, uint64_t all);

/* Submits a transfer and waits for its end with this timeout. Returns the first status that is not OK. */
kvmem_status submit_and_wait(kvmem_transfer *transfer, uint64_t patience);

/* Submits a transfer once its blocks are free: a run that has ended at a limit may use them for a while.
   Returns the first status that is not BUSY; only the deadline of the process limits that. */
kvmem_status submit_when_free(kvmem_transfer *transfer);

/* Runs a transfer that has a limit until a run has ended within it, which must succeed: on a busy machine a
   run may be late. */
void run_in_time(kvmem_transfer *transfer);
