// SPDX-License-Identifier: Apache-2.0
// Methods to move the same bytes, measured alternately. Each turn writes into wiped memory, and is checked.
#pragma once

#include "common/results.hpp"
#include "reference/cuda.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace bench {

enum class role {
    ours,
    reference,
    ceiling, // its bytes are at other places, and are not checked
};

// One method to move the bytes. Its functions can be called repeatedly.
struct move_method {
    bench::role role;
    std::string name;
    std::function<void()> submit;
    std::function<void()> submit_on_stream; // on `stream`; may be empty
    cuda::stream stream;
    std::function<void()> wait;        // until the caller sees the end of the transfer
    std::function<std::string()> path; // the path that kvmem chose; empty for references
};

inline void append(std::vector<move_method> &methods, const std::vector<move_method> &more)
{
    methods.insert(methods.end(), more.begin(), more.end());
}

// The durations of a method's turns, in nanoseconds; empty if it failed.
struct move_times {
    samples submit; // the call that submits the transfer
    samples seen;   // from before that call until the wait returns
    samples gpu;    // by the GPU's clock, between an event before the transfer and one after it; in separate turns
};

struct checked_move {
    uint64_t bytes;
    std::function<void()> wipe;
    std::function<void()> verify;
    std::function<void()> wipe_for_ceiling; // the bytes that the ceiling writes, for the same state of the caches
};

// Measures the methods alternately, after one round that is not counted. A method that fails is reported and left out.
// Throws if all methods of kvmem fail.
std::vector<move_times> alternate_moves(int rounds, const checked_move &moved,
                                        const std::vector<move_method> &methods);

// Adds rows of each method of kvmem against each reference: GB/s from the submission until the end is seen, GB/s
// between two events on a stream, and microseconds of the submitting call.
void add_move_rows(results &found, const std::string &name, const parameters &measured, uint64_t bytes,
                   const std::vector<move_method> &methods, const std::vector<move_times> &times);

// Returns the number of turns, fewer for more bytes.
int rounds_for(uint64_t bytes);

} // namespace bench
