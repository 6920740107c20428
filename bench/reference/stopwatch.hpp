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

    // Each when the stream has done what is on it now.
    void start(stream on);
    void stop(stream on);

    bool running() const; // not stopped yet, as the GPU sees it

    // Waits for the end and answers nanoseconds. The tests' stand-in has no clock of its own: there they are
    // the caller's, until this call.
    double wait_ns();

  private:
    event start_ = nullptr;
    event end_ = nullptr;
    double started_ns_ = 0;
};

} // namespace cuda
