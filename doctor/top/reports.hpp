// SPDX-License-Identifier: Apache-2.0
// Reports of another process: docs/statistics.md specifies how they are read.
#pragma once

#include <sys/types.h>

#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace doctor {

/// A process has no report, or another user's process may not read it.
struct ReportError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

enum class ReportKind : char { statistics = 't', slowest_runs = 's', trace = 'j' };

/// Reads a report of a process. Fails if it is not complete after five seconds.
std::string read_report(pid_t process, ReportKind kind);

/// The values of Prometheus's text by their series, such as `kvmem_handles{type="region"}`.
std::map<std::string, double> series_of(std::string_view text);

/// A label of a series; empty if it has none of this name.
std::string label_of(std::string_view series, std::string_view name);

std::vector<std::string> split(std::string_view text, char separator);

}  // namespace doctor
