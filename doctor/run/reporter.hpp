// SPDX-License-Identifier: Apache-2.0
// Reports of a check from its process to the doctor.
#pragma once

#include "../report/finding.hpp"

#include <string_view>

namespace doctor {

class Reporter {
public:
    /// Writes to this file descriptor.
    explicit Reporter(int fd) : fd_(fd) {}

    /// Reports the next step of the check. If the process ends or hangs in it, the finding names the step.
    void step(std::string_view what);
    void add(const Finding &finding);
    void add(const Route &route);
    /// The check cannot continue, for this reason.
    void failure(std::string_view reason);
    /// The check has run to its end.
    void end();

private:
    void send(const char *kind, Value value);
    int fd_;
};

}  // namespace doctor
