// SPDX-License-Identifier: Apache-2.0
// What a queue tells, and a transfer that is waited for.
#pragma once

#include <kvmem.h>

/* Waits for the next completion, and takes no other. */
kvmem_completion next_completion(kvmem_queue *queue);

/* Submits a transfer and waits for its end this long: the first status that is not OK. */
kvmem_status submit_and_wait(kvmem_transfer *transfer, uint64_t patience);
