// SPDX-License-Identifier: Apache-2.0
// What can be asked for on the command line.
#pragma once

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>

// Which process this is. The user starts the parent; the parent starts the other two with the same options.
enum class Role { parent, prefill, decode };

struct Options {
    std::uint64_t blocks = 256;
    std::uint64_t layers = 32;
    std::uint64_t heads = 8;
    std::uint64_t head_dim = 128;
    std::uint64_t page_size = 16;
    std::uint64_t pull = 0;  // blocks that decode pulls; 0: half of them
    std::uint64_t seed = 1;
    std::uint64_t timeout = 300;
    std::string tier = "system";
    std::uint64_t device = 0;  // the GPU, for tiers that need one
    std::string disk_dir;  // empty: where temporary files go
    bool share = false;  // decode maps prefill's cache; otherwise it reads it over NIXL
    bool help = false;

    Role role = Role::parent;
    std::uint64_t socket = 0;  // the child's end of the socket pair
};

// A command line that cannot be meant: the text says what was wrong.
struct UsageError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

Options parse_options(int argc, char **argv);
std::string help_text();
