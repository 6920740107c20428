// SPDX-License-Identifier: Apache-2.0
// How the end of a transfer is seen, and what is told of many of them.
#pragma once

#include "common/kv.hpp"
#include "common/results.hpp"
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

// Adds the rows of row 9: p50 and p99 of each way of kvmem. `taken` has raw NIXL polled without pause, kvmem_transfer_wait,
// kvmem_queue_wait, poll(2) on the event fd, and NIXL polled every 1 ms. `length` is that of a series.
void add_completion_rows(results &found, const parameters &point, const std::vector<samples> &taken, size_t length);

// Adjacent on both sides, so that they move as one.
kv::pairs first_blocks(uint32_t count);

} // namespace bench
