// SPDX-License-Identifier: Apache-2.0
// Requirements of the caller, and whether the findings meet them.
#pragma once

#include "report/finding.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace doctor {

/// Whether a name can be required: one of the list, "plugin:NAME", or the id of a finding.
bool is_requirement(std::string_view name);

/// Whether its findings are those of transfers and measured rates.
bool needs_transfers(std::string_view name);

/// A line per name, with its meaning.
std::string requirement_names();

struct Verdict {
    std::string name;
    bool is_met = false;
    /// The findings that are not ok; empty if the requirement is met.
    std::string reason;
};

std::vector<Verdict> judge(const std::vector<std::string> &required, const Report &report);

}  // namespace doctor
