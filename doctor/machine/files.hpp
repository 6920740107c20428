// SPDX-License-Identifier: Apache-2.0
// Small files of the kernel: /proc and /sys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace doctor {

/// The text of a file without the line end; nothing if it cannot be read.
std::optional<std::string> text_of(const std::string &path);
std::vector<std::string> lines_of(const std::string &path);
/// The number that a file contains.
std::optional<std::uint64_t> number_of(const std::string &path);
/// The text after "name:" of a file such as /proc/self/status, without blanks around it.
std::optional<std::string> field_of(const std::string &path, const std::string &name);
/// A field in bytes that the file has in KiB: "MemTotal:   24684096 kB".
std::optional<std::uint64_t> kilobytes_of(const std::string &path, const std::string &name);
/// Names in a directory, sorted, without those that start with a point.
std::vector<std::string> names_in(const std::string &directory);
bool exists(const std::string &path);

}  // namespace doctor
