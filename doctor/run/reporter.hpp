// SPDX-License-Identifier: Apache-2.0
// How a check, in a process of its own, reports what it finds.
#pragma once

#include "../report/finding.hpp"

#include <string_view>

namespace doctor {

class Reporter {
public:
    /// Writes to this file descriptor.
    explicit Reporter(int fd) : fd_(fd) {}

    /// Says what the check does next. If it ends or hangs there, the report names it.
    void step(std::string_view what);
    void add(const Finding &finding);
    void add(const Route &route);
    /// The check cannot continue, for this reason.
    void failure(std::string_view reason);
    /// The check has done all that it should.
    void end();

private:
    void send(const char *kind, Value value);
    int fd_;
};

}  // namespace doctor
