// SPDX-License-Identifier: Apache-2.0
// Events of the driver, and a thread that sees the end of work on a stream with the lowest latency.
#pragma once

#include "reference/cuda.hpp"

#include <atomic>
#include <thread>

namespace cuda {

class own_event {
  public:
    own_event();
    ~own_event();
    own_event(const own_event &) = delete;
    own_event &operator=(const own_event &) = delete;

    void record(stream on) const;
    bool is_complete() const;

  private:
    event handle_ = nullptr;
};

// Polls a byte of page-locked memory, which the stream writes after the work. Calls no function of the driver for that,
// and keeps a core busy until it is destroyed.
class observer {
  public:
    observer();
    ~observer();
    observer(const observer &) = delete;
    observer &operator=(const observer &) = delete;

    // Starts to observe the end of the work that is on the stream now. With `wakes`, the fd becomes readable at the
    // end.
    void watch(stream on, bool wakes);
    // Waits for the end. Returns when the observer saw it, by the benches' clock.
    double saw_ns() const;
    // The event fd. A thread that waits on it must read it.
    int fd() const { return fd_; }

  private:
    enum state : int { idle, watching, over, leaving };
    void look();

    volatile unsigned char *byte_ = nullptr; // written by the stream, page-locked
    unsigned char wanted_ = 0;
    bool wakes_ = false;
    int fd_;
    std::atomic<int> state_{idle};
    double saw_ns_ = 0; // written by the thread before `over`, read after it
    std::thread thread_;
};

} // namespace cuda
