// SPDX-License-Identifier: Apache-2.0
// Events of the driver's, and a thread that sees the end of work as soon as anybody can.
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
    bool is_over() const;

  private:
    event handle_ = nullptr;
};

// Queries an event without pause while there is one to look at, and keeps a core busy as long as it lives.
class observer {
  public:
    explicit observer(int device);
    ~observer();
    observer(const observer &) = delete;
    observer &operator=(const observer &) = delete;

    // Looks for the end of what is on the stream now.
    void watch(stream on);
    // When it saw that, by the benches' clock; waits for it.
    double saw_ns() const;

  private:
    enum state : int { idle, watching, over, failed, leaving };
    void look();

    int device_;
    own_event end_;
    std::atomic<int> state_{idle};
    double saw_ns_ = 0; // the state tells who has it
    std::thread thread_;
};

} // namespace cuda
