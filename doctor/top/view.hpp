// SPDX-License-Identifier: Apache-2.0
// What a process has moved between two reports of it.
#pragma once

#include <map>
#include <string>

namespace doctor {

/// As text. `slowest` is the report of the slowest runs.
std::string view(const std::map<std::string, double> &before, const std::map<std::string, double> &after,
                 double seconds, const std::string &slowest);

}  // namespace doctor
