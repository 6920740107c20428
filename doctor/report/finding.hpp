// SPDX-License-Identifier: Apache-2.0
// Findings, the results of the checks.
#pragma once

#include "value.hpp"

#include <string>
#include <vector>

namespace doctor {

enum class Level {
    /// It works.
    ok,
    /// It works, with a limit that can matter.
    limited,
    /// The machine does not have it.
    missing,
    /// It should work but does not, or its check did not end.
    failed,
    /// It was not checked: the text has the reason.
    skipped,
};

const char *name(Level level);

struct Finding {
    /// Never changes from version to version: "gpu.0.vmm". Its first part is the group.
    std::string id;
    /// The subject of the check, for people.
    std::string title;
    Level level = Level::ok;
    /// The result, for people.
    std::string text;
    /// The fix, in one line; empty if there is none.
    std::string fix;
    /// The figures, for programs.
    Value::Object data;

    Value to_value() const;
    /// Missing members get defaults.
    static Finding from_value(const Value &value);
};

/// A transfer between two tiers.
struct Route {
    std::string from;
    std::string to;
    Level level = Level::ok;
    /// The method of the transfer: a constant of kvmem.h in small letters, without its prefix.
    std::string method;
    /// The name of the method for people.
    std::string method_name;
    /// 0 if nothing was measured.
    std::uint64_t bytes_per_second = 0;
    /// kvmem's estimate; 0 if unknown.
    std::uint64_t estimated_bytes_per_second = 0;
    /// Why nothing was measured, or a remark on the method.
    std::string text;
    std::string fix;
    /// Other methods, each with the reason why it is not chosen.
    struct Other {
        std::string method;
        std::string method_name;
        std::string reason;
        /// Whether the method is impossible, rather than slower.
        bool is_impossible = false;
        /// Estimated; 0 if unknown.
        std::uint64_t bytes_per_second = 0;
    };
    std::vector<Other> others;
    Value::Object data;

    /// "paths.system.disk.0"
    std::string id() const { return "paths." + from + "." + to; }
    Value to_value() const;
    static Route from_value(const Value &value);
};

struct Report {
    std::vector<Finding> findings;
    std::vector<Route> routes;
};

}  // namespace doctor
