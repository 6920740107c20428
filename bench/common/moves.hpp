// SPDX-License-Identifier: Apache-2.0
// Ways to move the same bytes, taking turns, each turn into wiped memory and checked.
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
    ceiling, // its bytes lie elsewhere and are not checked
};

// One way to move them. All may be called again and again.
struct move_way {
    bench::role role;
    std::string name;
    std::function<void()> submit;
    std::function<void()> submit_on_stream; // a stream of its own; may be empty
    cuda::stream stream;
    std::function<void()> wait;        // until the caller knows that every byte is there
    std::function<std::string()> path; // ours: the engine that was taken
};

inline void append(std::vector<move_way> &ways, const std::vector<move_way> &more)
{
    ways.insert(ways.end(), more.begin(), more.end());
}

// What a way took in its turns, in nanoseconds; nothing where it failed.
struct move_times {
    samples submit; // the call that starts it
    samples seen;   // from that call to the end of the wait
    samples gpu; // in turns of their own: from an event on the stream before it to one after it, by the GPU's
                 // clock
};

struct checked_move {
    uint64_t bytes;
    std::function<void()> wipe;
    std::function<void()> verify;
    std::function<void()> wipe_for_ceiling; // where that writes: in the same state as for the others
};

// One round is not counted. A way that fails is told and drops out; with no way of ours left that is thrown.
std::vector<move_times> alternate_moves(int rounds, const checked_move &moved,
                                        const std::vector<move_way> &ways);

// Rows of each way of ours against each reference: GB/s from the submission until it is seen to be done, and
// between two events on a stream; microseconds of the submitting call.
void add_move_rows(results &found, const std::string &name, const parameters &measured, uint64_t bytes,
                   const std::vector<move_way> &ways, const std::vector<move_times> &times);

// Fewer turns the more there is to move.
int rounds_for(uint64_t bytes);

} // namespace bench
