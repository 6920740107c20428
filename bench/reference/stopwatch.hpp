// SPDX-License-Identifier: Apache-2.0
// Time by the GPU's clock, between two events on a stream.
#pragma once

#include "reference/cuda.hpp"

namespace cuda {

class stopwatch {
  public:
    stopwatch();
    ~stopwatch();
    stopwatch(const stopwatch &) = delete;
    stopwatch &operator=(const stopwatch &) = delete;

    // Both take effect when the work that is on the stream now is done.
    void start(stream on);
    void stop(stream on);

    bool running() const; // whether the GPU has not reached the stop

    // Waits for the stop, and returns the nanoseconds between the two. The tests' stand-in has no clock: there it
    // returns the caller's time since `start`.
    double wait_ns();

  private:
    event start_ = nullptr;
    event end_ = nullptr;
    double started_ns_ = 0;
};

} // namespace cuda
