// SPDX-License-Identifier: Apache-2.0
// The memory that this process may use.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace doctor {

/// The limit of the control group of this process, the lowest of all groups above it.
struct GroupMemory {
    std::uint64_t limit = 0;
    /// In use, without the page cache that can be dropped.
    std::uint64_t used = 0;
    std::uint64_t available() const { return limit > used ? limit - used : 0; }
};

/// Nothing if no limit is set.
std::optional<GroupMemory> group_memory();

/// Available memory of the machine and the control group, in bytes.
std::uint64_t available_memory();

}  // namespace doctor
