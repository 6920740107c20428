// SPDX-License-Identifier: Apache-2.0
// What the figures were taken on.
#pragma once

#include <string>

namespace bench {

// One line: processor, cores, memory, kernel.
std::string machine_description();

} // namespace bench
