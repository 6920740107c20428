// SPDX-License-Identifier: Apache-2.0
#include "table.hpp"

#include <cstdio>

namespace {

bool every_row_same = true;

}  // namespace

bool all_same() { return every_row_same; }

void print_head() {
    std::printf("%-10s  %-30s  %10s  %9s  %6s  %-24s  %s\n", "model", "step", "bytes", "time", "GB/s", "path", "same tokens");
}

void print_row(const std::string &model, const std::string &step, const Moved &moved, double seconds, bool same_tokens) {
    every_row_same = every_row_same && same_tokens;
    const double bytes = static_cast<double>(moved.bytes);
    std::printf("%-10s  %-30s  %6.1f MiB  %6.2f ms  %6.2f  %-24s  %s\n", model.c_str(), step.c_str(), bytes / (1 << 20),
                seconds * 1e3, bytes / seconds / 1e9, moved.path.c_str(), same_tokens ? "yes" : "NO");
    std::fflush(stdout);
}
