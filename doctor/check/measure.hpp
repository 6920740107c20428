// SPDX-License-Identifier: Apache-2.0
// A short measurement of transfers between two layouts.
#pragma once

#include "../report/finding.hpp"

#include <kvmem.hpp>

#include <chrono>
#include <string>

namespace doctor {

/// Bytes of a block: 16 layers of keys and values of 16 tokens.
constexpr std::uint64_t block_size = 1 << 20;

/// The shape of all layouts here.
kvmem::LayoutConfig shape(std::uint32_t num_blocks);

/// Blocks of each layout: 32, or fewer if the machine or the control group has little memory; 0 if it has too little.
std::uint32_t affordable_blocks();

/// A layout and its name in the report.
struct Place {
    std::string name;
    kvmem::Layout layout;
};

/// Moves blocks for about this time, and reports the method and the median rate. Reports a failure as one; throws
/// nothing. `blocks` is the size of both layouts.
Route measure(const Place &from, const Place &to, std::uint32_t blocks, std::chrono::milliseconds time);

/// A route that was not measured.
Route without_rate(const std::string &from, const std::string &to, Level level, std::string_view reason);

}  // namespace doctor
