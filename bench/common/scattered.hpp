// SPDX-License-Identifier: Apache-2.0
// Rows 1 and 2: scattered blocks of one contiguous piece, over a grid of sizes and counts.
#pragma once

#include "common/arena.hpp"
#include "common/points.hpp"

#include <string>
#include <vector>

namespace bench {

enum class order {
    scattered,
    contiguous, // the blocks are consecutive, in the order of the pairs
};

struct scattered_case {
    std::string row;
    std::string title;
    bench::parameters parameters;
    const arena &from;
    const arena &to;
    const arena &mirror;
    order source;
    order destination;
};

// Returns the bytes that the largest point needs on each side, twice as many as it moves.
uint64_t scattered_bytes(const options &chosen);

// Measures every point of the grid that fits into the arenas.
void measure_scattered(const options &chosen, const scattered_case &measured, points &grid, results &found);

} // namespace bench
