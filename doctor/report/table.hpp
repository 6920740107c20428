// SPDX-License-Identifier: Apache-2.0
// The report as a table for people.
#pragma once

#include "finding.hpp"

#include <string>

namespace doctor {

/// With escape sequences for colours, if these are wanted.
std::string to_table(const Report &report, const std::string &machine, bool has_colours);

/// The status of a requirement, in the same style.
std::string verdict_line(bool is_met, const std::string &text, bool has_colours);

}  // namespace doctor
