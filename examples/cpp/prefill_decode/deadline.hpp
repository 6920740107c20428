// SPDX-License-Identifier: Apache-2.0
// A point in time by which everything is over, so that no wait of this program lasts for ever.
#pragma once

#include <algorithm>
#include <chrono>

class Deadline {
public:
    using Clock = std::chrono::steady_clock;

    explicit Deadline(std::chrono::seconds from_now) : end_(Clock::now() + from_now) {}

    bool passed() const { return Clock::now() >= end_; }

    std::chrono::nanoseconds left() const {
        return std::max<Clock::duration>(end_ - Clock::now(), Clock::duration::zero());
    }

    // As poll takes its timeouts; at most `longest`, for a loop that has to look around now and then.
    int left_ms(std::chrono::milliseconds longest) const {
        const auto left_ms = std::chrono::duration_cast<std::chrono::milliseconds>(left());
        return static_cast<int>(std::min(left_ms, longest).count());
    }

private:
    Clock::time_point end_;
};
