// SPDX-License-Identifier: Apache-2.0
// Runs a check in a separate process, so that a driver, plugin or file system that crashes or hangs does not end the
// doctor.
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
    /// Whether the check ran to its end.
    bool is_complete = false;
    /// Otherwise: how it ended, and its last step.
    std::string failure;
    /// The last step that it reported.
    std::string step;
};

/// Runs the work in a child, for at most this time. The child and its own children are killed at the end. A child
/// that cannot be killed, because it waits in the kernel, remains.
Outcome run_in_child(const Work &work, std::chrono::milliseconds limit);

}  // namespace doctor
