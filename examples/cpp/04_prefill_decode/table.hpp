// SPDX-License-Identifier: Apache-2.0
// The table that the demo prints: one row for each step of either process.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

// The path of rows without a transfer.
constexpr char no_path[] = "-";

struct Row {
    std::string process;
    std::string step;
    std::uint64_t bytes = 0;
    std::chrono::duration<double> time{};
    std::string path = no_path;  // the path of the transfer
    std::string verified = "-";  // the check after the step; not included in the time
};

std::string table_head();
std::string format_row(const Row &row);
std::string format_bytes(std::uint64_t bytes);
std::string count_blocks(std::uint64_t count);

// The time since its construction.
class Stopwatch {
public:
    std::chrono::duration<double> read() const { return std::chrono::steady_clock::now() - start_; }

private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};
