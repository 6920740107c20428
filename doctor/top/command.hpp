// SPDX-License-Identifier: Apache-2.0
// kvmem-doctor top: what a process moves now.
#pragma once

#include <functional>
#include <string>

namespace doctor {

/// Passes each view to `show`, until that returns false. The views end with the process, and after those that were asked for.
void top(int argc, char **argv, bool is_terminal, const std::function<bool(const std::string &)> &show);

}  // namespace doctor
