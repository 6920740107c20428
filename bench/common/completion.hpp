// SPDX-License-Identifier: Apache-2.0
// How the end of a transfer is seen, and what is told of many of them.
#pragma once

#include "common/kv.hpp"
#include "common/samples.hpp"

#include <cstdint>

namespace bench {

// Throws unless the next completion says that all went well.
void wait_on_queue(kvmem_queue *queue);
// As an event loop does it: asleep in poll(2) on the queue's fd, with whatever else it watches.
void wait_on_fd(kvmem_queue *queue, int fd);

void sleep_1_ms();

// Many transfers one after the other; the statistic of each series of `length`, in microseconds.
samples by_series(const samples &all, double share, size_t length);

// Adjacent on both sides, so that they move as one.
kv::pairs first_blocks(uint32_t count);

} // namespace bench
