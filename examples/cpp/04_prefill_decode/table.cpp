// SPDX-License-Identifier: Apache-2.0
// Formats rows in columns, and numbers with units.
#include "table.hpp"

#include <cmath>
#include <cstddef>
#include <cstdio>

namespace {

std::string columns(const std::string &process, const std::string &step, const std::string &bytes,
                    const std::string &time, const std::string &rate, const std::string &path,
                    const std::string &verified) {
    char line[256];
    std::snprintf(line, sizeof line, "%-9s  %-24s  %9s  %9s  %6s  %-25s  %s\n", process.c_str(), step.c_str(),
                  bytes.c_str(), time.c_str(), rate.c_str(), path.c_str(), verified.c_str());
    return line;
}

std::string number(const char *format, double value) {
    char text[32];
    std::snprintf(text, sizeof text, format, value);
    return text;
}

std::string format_time(double seconds) {
    return seconds < 1.0 ? number("%.1f ms", seconds * 1e3) : number("%.2f s", seconds);
}

}  // namespace

std::string count_blocks(std::uint64_t count) {
    return std::to_string(count) + (count == 1 ? " block" : " blocks");
}

std::string format_bytes(std::uint64_t bytes) {
    const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = static_cast<double>(bytes);
    std::size_t unit = 0;
    for (; value >= 1024.0 && unit < 4; ++unit) value /= 1024.0;
    const bool whole = value == std::floor(value);
    return number(whole ? "%.0f " : "%.1f ", value) + units[unit];
}

std::string table_head() {
    const auto rule = [](std::size_t width) { return std::string(width, '-'); };
    return columns("process", "step", "bytes", "time", "GB/s", "path", "verified") +
           columns(rule(9), rule(24), rule(9), rule(9), rule(6), rule(25), rule(10));
}

std::string format_row(const Row &row) {
    const double seconds = row.time.count();
    const bool rated = row.path != no_path && seconds > 0.0;
    return columns(row.process, row.step, row.bytes ? format_bytes(row.bytes) : "-", format_time(seconds),
                   rated ? number("%.2f", static_cast<double>(row.bytes) / seconds / 1e9) : "-", row.path,
                   row.verified);
}
