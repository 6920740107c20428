// SPDX-License-Identifier: Apache-2.0
// The machine of the measurements.
#pragma once

#include <cstdint>
#include <string>

namespace bench {

// One line: processor, cores, memory, kernel.
std::string machine_description();

// Returns the available memory in bytes, within the limit of the control group.
uint64_t free_bytes();

} // namespace bench
