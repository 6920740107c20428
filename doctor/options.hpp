// SPDX-License-Identifier: Apache-2.0
// The command line.
#pragma once

#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace doctor {

enum class Colour { automatic, always, never };

struct Options {
    /// Directories whose files are checked.
    std::vector<std::string> directories;
    /// What must work, as it was given.
    std::vector<std::string> required;
    /// Another NIXL than the one that kvmem finds.
    std::optional<std::string> nixl;
    std::chrono::seconds limit{20};
    Colour colour = Colour::automatic;
    bool is_json = false;
    bool measures = true;
    bool wants_help = false;
    bool wants_version = false;
    bool wants_names = false;
};

/// A command line that cannot be understood: the message says what is wrong.
struct UsageError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

Options parse(int argc, char **argv);

/// What --help prints.
std::string help();

}  // namespace doctor
