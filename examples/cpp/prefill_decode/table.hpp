// SPDX-License-Identifier: Apache-2.0
// The table that the demo prints: one row for each step of either process.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

// For rows in which no bytes go anywhere.
constexpr char no_path[] = "-";

struct Row {
    std::string process;
    std::string step;
    std::uint64_t bytes = 0;
    std::chrono::duration<double> time{};
    std::string path = no_path;  // how the bytes went
    std::string verified = "-";  // what was compared afterwards; not part of the time
};

std::string table_head();
std::string format_row(const Row &row);
std::string format_bytes(std::uint64_t bytes);
std::string count_blocks(std::uint64_t count);

// The time since it was made.
class Stopwatch {
public:
    std::chrono::duration<double> read() const { return std::chrono::steady_clock::now() - start_; }

private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};
