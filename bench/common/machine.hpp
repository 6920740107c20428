// SPDX-License-Identifier: Apache-2.0
// What the figures were taken on.
#pragma once

#include <cstdint>
#include <string>

namespace bench {

// One line: processor, cores, memory, kernel.
std::string machine_description();

// Bytes of memory that the kernel says can be had, within what is left of the control group's limit.
uint64_t free_bytes();

} // namespace bench
