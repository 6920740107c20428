// SPDX-License-Identifier: Apache-2.0
// Row 18: what the calling thread spends on moving other blocks in every step, between two layouts.
#pragma once

#include "common/kv.hpp"
#include "common/program.hpp"

#include <functional>
#include <string>

namespace bench {

// Layouts of the same blocks, 8 pieces of 2 KiB each, which are contiguous on one side only.
constexpr uint64_t hot_pieces = 8;
constexpr uint64_t hot_piece_bytes = 2048;
constexpr uint32_t hot_pool = 4096;

kvmem_layout_config hot_source();
kvmem_layout_config hot_destination();

struct hot_route {
    std::string name;
    const kv::layout &from;
    const kv::layout &to;
    kv::wish wished;
    parameters told;                               // of every row
    std::function<void(const kv::pairs &)> verify; // throws unless these blocks have arrived
};

// Rows for 1 to 1,000 pairs: one call that creates and submits, and new pairs for a prepared transfer, against creating and
// submitting by two calls. All in turns, each time with other blocks; the ceiling is the same transfer submitted again.
void measure_hot_path(const options &chosen, const hot_route &route, results &found);

} // namespace bench
