// SPDX-License-Identifier: Apache-2.0
// Ways to move the same bytes, taking turns, each turn into wiped memory and checked.
#pragma once

#include "common/results.hpp"

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

// One way to move them. `submit` and `wait` may be called again and again.
struct move_way {
    bench::role role;
    std::string name;
    std::function<void()> submit;
    std::function<void()> wait;        // until the caller knows that every byte is there
    std::function<std::string()> path; // ours: the engine that was taken
};

// What a way took in its turns, in nanoseconds; nothing where it failed.
struct move_times {
    samples submit; // the call that starts it
    samples seen;   // from that call to the end of the wait
};

struct checked_move {
    uint64_t bytes;
    std::function<void()> wipe;
    std::function<void()> verify;
};

// One turn is not counted. A way that fails is told and drops out; with no way of ours left that is thrown.
std::vector<move_times> alternate_moves(int rounds, const checked_move &moved, const std::vector<move_way> &ways);

// Rows of each way of ours against each reference: GB/s from the submission until it is seen to be done, and
// microseconds of the submitting call.
void add_move_rows(results &found, const std::string &name, const parameters &measured, uint64_t bytes,
                   const std::vector<move_way> &ways, const std::vector<move_times> &times);

// Fewer turns the more there is to move.
int rounds_for(uint64_t bytes);

} // namespace bench
