// SPDX-License-Identifier: Apache-2.0
// Time as the benches take it: the steady clock, in nanoseconds.
#pragma once

#include <chrono>

namespace bench {

inline double now_ns()
{
    const auto since_start = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<double>(std::chrono::duration_cast<std::chrono::nanoseconds>(since_start).count());
}

// How long `work` takes, in nanoseconds.
template <typename Work> double time_ns(Work &&work)
{
    const double start = now_ns();
    work();
    return now_ns() - start;
}

} // namespace bench
