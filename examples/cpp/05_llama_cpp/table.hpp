// SPDX-License-Identifier: Apache-2.0
// The table that the program prints.
#pragma once

#include "layouts.hpp"
#include "run.hpp"

#include <chrono>
#include <string>

class Stopwatch {
public:
    double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void print_head();
void print_row(const std::string &model, const std::string &step, const Moved &moved, double seconds);
// With the comparison of the continuation.
void print_row(const std::string &model, const std::string &step, const Moved &moved, double seconds, const Likeness &likeness);

// Whether all rows so far had the logits of a single process, bit by bit; on a GPU, except for rounding.
bool all_alike(bool on_gpu);
std::string verdict(bool on_gpu);
