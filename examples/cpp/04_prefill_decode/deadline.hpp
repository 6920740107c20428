// SPDX-License-Identifier: Apache-2.0
// The deadline of the program, so that every wait ends.
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

    // The remaining milliseconds, as a timeout of poll(2); at most `longest`, for a loop that also checks other
    // conditions.
    int left_ms(std::chrono::milliseconds longest) const {
        const auto left_ms = std::chrono::duration_cast<std::chrono::milliseconds>(left());
        return static_cast<int>(std::min(left_ms, longest).count());
    }

private:
    Clock::time_point end_;
};
