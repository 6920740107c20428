// SPDX-License-Identifier: Apache-2.0
// Two events.
#include "reference/stopwatch.hpp"

#include "common/clock.hpp"

#include <stdexcept>

namespace cuda {

stopwatch::stopwatch()
{
    check(load().event_create(&start_, 0), "cuEventCreate");
    check(load().event_create(&end_, 0), "cuEventCreate");
}

stopwatch::~stopwatch()
{
    load().event_destroy(end_);
    load().event_destroy(start_);
}

void stopwatch::start(stream on)
{
    started_ns_ = bench::now_ns();
    check(load().event_record(start_, on), "cuEventRecord");
}

void stopwatch::stop(stream on) { check(load().event_record(end_, on), "cuEventRecord"); }

bool stopwatch::running() const
{
    const result code = load().event_query(end_);
    if (code != not_ready)
        check(code, "cuEventQuery");
    return code == not_ready;
}

double stopwatch::wait_ns()
{
    check(load().event_synchronize(end_), "cuEventSynchronize");
    if (load().stand_in)
        return bench::now_ns() - started_ns_;
    if (load().event_elapsed == nullptr)
        throw std::runtime_error("the CUDA driver has no cuEventElapsedTime");
    float milliseconds = 0;
    check(load().event_elapsed(&milliseconds, start_, end_), "cuEventElapsedTime");
    return static_cast<double>(milliseconds) * 1e6;
}

} // namespace cuda
