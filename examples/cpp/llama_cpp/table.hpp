// SPDX-License-Identifier: Apache-2.0
// The table that the program prints.
#pragma once

#include "layouts.hpp"

#include <chrono>
#include <string>

class Stopwatch {
public:
    double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void print_head();
// Whether all rows so far had the same tokens.
bool all_same();
void print_row(const std::string &model, const std::string &step, const Moved &moved, double seconds, bool same_tokens);
