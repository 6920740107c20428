// SPDX-License-Identifier: Apache-2.0
// Row 18: the time of the calling thread to move other blocks between two layouts in every step.
#pragma once

#include "common/kv.hpp"
#include "common/program.hpp"

#include <functional>
#include <string>

namespace bench {

// Layouts of the same blocks. Each has 8 pieces of 2 KiB, which are contiguous on one side only.
constexpr uint64_t hot_pieces = 8;
constexpr uint64_t hot_piece_bytes = 2048;
constexpr uint32_t hot_pool = 4096;

kvmem_layout_config hot_source();
kvmem_layout_config hot_destination();

struct hot_route {
    std::string name;
    const kv::layout &from;
    const kv::layout &to;
    kv::preferences preferred;
    parameters setting;                               // of every row
    std::function<void(const kv::pairs &)> verify; // throws unless these blocks have arrived
};

// Adds rows for 1 to 1,000 pairs: kvmem_transfer_start, and kvmem_transfer_submit with pairs on a transfer that had others, against
// creating, preparing and submitting by three calls. The calls alternate, each with other blocks. The ceiling is
// kvmem_transfer_submit of the same pairs again.
void measure_hot_path(const options &chosen, const hot_route &route, results &found);

} // namespace bench
