// SPDX-License-Identifier: Apache-2.0
// Clocks of the benches: the steady clock in nanoseconds, and CPU time.
#pragma once

#include <chrono>
#include <sys/resource.h>

namespace bench {

inline double now_ns()
{
    const auto since_start = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<double>(std::chrono::duration_cast<std::chrono::nanoseconds>(since_start).count());
}

// Returns the duration of `work` in nanoseconds.
template <typename Work> double time_ns(Work &&work)
{
    const double start = now_ns();
    work();
    return now_ns() - start;
}

// CPU time of all threads of this process, in seconds.
inline double cpu_seconds()
{
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    const auto seconds = [](const timeval &time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    };
    return seconds(used.ru_utime) + seconds(used.ru_stime);
}

} // namespace bench
