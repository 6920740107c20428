// SPDX-License-Identifier: Apache-2.0
#include "table.hpp"

#include <cstdio>

namespace {

Likeness all_rows;

std::string decimals(double value, int digits) {
    char text[32];
    std::snprintf(text, sizeof text, "%.*f", digits, value);
    return text;
}

std::string count(const Likeness &likeness) {
    return std::to_string(likeness.same_tokens) + " of " + std::to_string(likeness.tokens);
}

std::string words(const Likeness &likeness) {
    if (likeness.difference == 0) return "yes, all bits";
    const std::string tokens = likeness.same_tokens == likeness.tokens ? "yes" : "NO, " + count(likeness);
    return tokens + ", within " + decimals(likeness.difference, 6);
}

void print_line(const std::string &model, const std::string &step, const Moved &moved, double seconds,
                const std::string &last) {
    const bool has_bytes = moved.bytes > 0;
    const double bytes = static_cast<double>(moved.bytes);
    const std::string size = has_bytes ? decimals(bytes / (1 << 20), 1) : "";
    const std::string rate = has_bytes ? decimals(bytes / seconds / 1e9, 2) : "";
    std::printf("%-10s  %-25s  %8s  %9.2f  %6s  %-20s  %s\n", model.c_str(), step.c_str(), size.c_str(), seconds * 1e3,
                rate.c_str(), last.c_str(), moved.path.c_str());
    std::fflush(stdout);
}

}  // namespace

void print_head() {
    std::printf("%-10s  %-25s  %8s  %9s  %6s  %-20s  %s\n", "model", "step", "MiB", "ms", "GB/s", "same tokens", "path");
}

void print_row(const std::string &model, const std::string &step, const Moved &moved, double seconds) {
    print_line(model, step, moved, seconds, "");
}

void print_row(const std::string &model, const std::string &step, const Moved &moved, double seconds,
               const Likeness &likeness) {
    all_rows = combine(all_rows, likeness);
    print_line(model, step, moved, seconds, words(likeness));
}

bool all_alike(bool on_gpu) { return is_alike(all_rows, on_gpu); }

std::string verdict(bool on_gpu) {
    if (all_rows.difference == 0) return "Every continuation has the logits of a single process, bit by bit.";
    const std::string difference = decimals(all_rows.difference, 6);
    if (!all_alike(on_gpu)) return "A continuation differs from that of a single process: a logit by " + difference + ".";
    return "Every continuation has the logits of a single process within " + difference + ", and " + count(all_rows) +
           " tokens are the same.";
}
