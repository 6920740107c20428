// SPDX-License-Identifier: Apache-2.0
// The observer's thread polls a byte without pause.
#include "reference/observer.hpp"

#include "common/clock.hpp"

#include <stdexcept>
#include <sys/eventfd.h>
#include <unistd.h>

namespace cuda {
namespace {

constexpr unsigned disable_timing = 2; // of events: recorded and queried fastest

} // namespace

own_event::own_event() { check(load().event_create(&handle_, disable_timing), "cuEventCreate"); }

own_event::~own_event() { load().event_destroy(handle_); }

void own_event::record(stream on) const { check(load().event_record(handle_, on), "cuEventRecord"); }

bool own_event::is_complete() const
{
    const result code = load().event_query(handle_);
    if (code == not_ready)
        return false;
    check(code, "cuEventQuery");
    return true;
}

observer::observer() : fd_(eventfd(0, EFD_CLOEXEC))
{
    if (fd_ < 0)
        throw std::runtime_error("no event fd for an observer");
    void *mark = nullptr;
    check(load().host_alloc(&mark, 1, 0), "cuMemHostAlloc");
    byte_ = static_cast<volatile unsigned char *>(mark);
    *byte_ = wanted_;
    thread_ = std::thread([this] { look(); });
}

observer::~observer()
{
    state_.store(leaving, std::memory_order_release);
    thread_.join();
    close(fd_);
    load().host_free(const_cast<unsigned char *>(byte_));
}

void observer::watch(stream on, bool wakes)
{
    ++wanted_;
    wakes_ = wakes;
    check(load().fill_async(reinterpret_cast<address>(byte_), wanted_, 1, on), "cuMemsetD8Async");
    state_.store(watching, std::memory_order_release);
}

double observer::saw_ns() const
{
    while (state_.load(std::memory_order_acquire) != over)
        std::this_thread::yield();
    return saw_ns_;
}

void observer::look()
{
    for (;;) {
        const int now = state_.load(std::memory_order_acquire);
        if (now == leaving)
            return;
        if (now != watching || *byte_ != wanted_)
            continue;
        saw_ns_ = bench::now_ns();
        const uint64_t one = 1;
        if (wakes_ && write(fd_, &one, sizeof one) != sizeof one)
            throw std::runtime_error("the observer could not write to its event fd");
        int expected = watching;
        state_.compare_exchange_strong(expected, over, std::memory_order_acq_rel);
    }
}

} // namespace cuda
