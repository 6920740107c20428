// SPDX-License-Identifier: Apache-2.0
// The thread that does nothing but look.
#include "reference/observer.hpp"

#include "common/clock.hpp"

#include <exception>
#include <stdexcept>

namespace cuda {
namespace {

constexpr unsigned disable_timing = 2; // of events: such ones are recorded and queried fastest

} // namespace

own_event::own_event() { check(load().event_create(&handle_, disable_timing), "cuEventCreate"); }

own_event::~own_event() { load().event_destroy(handle_); }

void own_event::record(stream on) const { check(load().event_record(handle_, on), "cuEventRecord"); }

bool own_event::is_over() const
{
    const result answer = load().event_query(handle_);
    if (answer == not_ready)
        return false;
    check(answer, "cuEventQuery");
    return true;
}

observer::observer(int device) : device_(device), thread_([this] { look(); }) {}

observer::~observer()
{
    state_.store(leaving, std::memory_order_release);
    thread_.join();
}

void observer::watch(stream on)
{
    end_.record(on);
    state_.store(watching, std::memory_order_release);
}

double observer::saw_ns() const
{
    for (;;) {
        const int now = state_.load(std::memory_order_acquire);
        if (now == over)
            return saw_ns_;
        if (now != watching)
            throw std::runtime_error("the observer could not look at its event");
        std::this_thread::yield();
    }
}

void observer::look()
{
    try {
        const current_device current(device_);
        for (;;) {
            const int now = state_.load(std::memory_order_acquire);
            if (now == leaving)
                return;
            if (now != watching || !end_.is_over())
                continue;
            saw_ns_ = bench::now_ns();
            int expected = watching;
            state_.compare_exchange_strong(expected, over, std::memory_order_acq_rel);
        }
    } catch (const std::exception &) {
        int expected = watching;
        state_.compare_exchange_strong(expected, failed, std::memory_order_acq_rel);
    }
}

} // namespace cuda
