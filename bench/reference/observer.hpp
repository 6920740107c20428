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

// Looks at a byte of page-locked memory without pause while it waits for the end of something, without a call of the
// driver's, and keeps a core busy as long as it lives.
class observer {
  public:
    observer();
    ~observer();
    observer(const observer &) = delete;
    observer &operator=(const observer &) = delete;

    // Looks for the end of what is on the stream now, and wakes who sleeps on the fd as soon as it sees that.
    void watch(stream on, bool wakes);
    // When it saw that, by the benches' clock; waits for it.
    double saw_ns() const;
    // Readable, and to be read, once it has seen the end of what was watched with that wish.
    int fd() const { return fd_; }

  private:
    enum state : int { idle, watching, over, leaving };
    void look();

    volatile unsigned char *mark_ = nullptr; // written by the stream
    unsigned char wanted_ = 0;
    bool wakes_ = false;
    int fd_;
    std::atomic<int> state_{idle};
    double saw_ns_ = 0; // the state tells who has it
    std::thread thread_;
};

} // namespace cuda
