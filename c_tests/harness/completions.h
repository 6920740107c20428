// SPDX-License-Identifier: Apache-2.0
// What a queue tells.
#pragma once

#include <kvmem.h>

/* Waits for the next completion, and takes no other. */
kvmem_completion next_completion(kvmem_queue *queue);
