// SPDX-License-Identifier: Apache-2.0
// Waiting for the end of a transfer, and statistics of the latency.
#pragma once

#include "common/kv.hpp"
#include "common/results.hpp"
#include "common/samples.hpp"

#include <cstdint>

namespace bench {

// Both wait for the next completion, and throw unless its status is KVMEM_STATUS_OK.
void wait_on_queue(kvmem_queue *queue);
// Sleeps in poll(2) on the queue's event fd, as an event loop does.
void wait_on_fd(kvmem_queue *queue, int fd);

void sleep_1_ms();

// Returns a percentile of each series of `length` samples, in microseconds.
samples by_series(const samples &all, double share, size_t length);

// Adds the rows of row 9: p50 and p99 of each method of kvmem. `taken` has raw NIXL polled without pause,
// kvmem_transfer_wait, kvmem_queue_wait, poll(2) on the event fd, and NIXL polled every 1 ms, in this order. `length`
// is the number of samples of a series.
void add_completion_rows(results &found, const parameters &point, const std::vector<samples> &taken, size_t length);

// Returns pairs that are adjacent on both sides, so that they move as one range.
kv::pairs first_blocks(uint32_t count);

} // namespace bench
