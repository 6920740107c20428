// SPDX-License-Identifier: Apache-2.0
// A check in a process of its own: a driver, plugin or file system that crashes or hangs ends that process, and not
// the doctor.
#pragma once

#include "reporter.hpp"

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace doctor {

using Work = std::function<void(Reporter &)>;

struct Outcome {
    std::vector<Finding> findings;
    std::vector<Route> routes;
    /// Whether the check did all that it should.
    bool is_complete = false;
    /// Otherwise: how it ended, and what it was doing.
    std::string failure;
    /// What it was doing last.
    std::string step;
};

/// Runs the work in a child, for at most this time. The child and its own children are killed at the end. A child
/// that cannot be killed, because it waits in the kernel, is left behind.
Outcome run_in_child(const Work &work, std::chrono::milliseconds limit);

}  // namespace doctor
