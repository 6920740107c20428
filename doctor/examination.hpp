// SPDX-License-Identifier: Apache-2.0
// Runs all checks, one after the other.
#pragma once

#include "options.hpp"
#include "report/finding.hpp"

namespace doctor {

Report examine(const Options &options);

}  // namespace doctor
