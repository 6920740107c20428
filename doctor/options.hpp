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
    /// The names given to --require.
    std::vector<std::string> required;
    /// Path of another NIXL than the one that kvmem finds.
    std::optional<std::string> nixl;
    std::chrono::seconds limit{20};
    Colour colour = Colour::automatic;
    bool is_json = false;
    bool measures = true;
    bool wants_help = false;
    bool wants_version = false;
    bool wants_names = false;
};

/// An invalid command line. The message has the reason.
struct UsageError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

Options parse(int argc, char **argv);

/// The text of --help.
std::string help();

}  // namespace doctor
