// SPDX-License-Identifier: Apache-2.0
// The options of the command line.
#pragma once

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

// The role of this process. The user starts the parent, which starts the others with the same options.
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
    std::string disk_dir;  // empty: the directory for temporary files
    bool share = false;  // decode maps prefill's cache; otherwise it reads over NIXL
    bool reshard = false;  // several ranks on each side, whose caches differ in heads, order and block size
    std::uint64_t prefill_ranks = 2;  // with reshard, also the three below
    std::uint64_t decode_ranks = 1;
    std::uint64_t decode_page_size = 64;
    std::uint64_t prompts = 8;
    bool help = false;

    Role role = Role::parent;
    std::uint64_t rank = 0;
    std::vector<int> sockets;  // the child's ends of its socket pairs, one for each rank of the other side
};

// An invalid command line. The text has the reason.
struct UsageError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The name of the process in messages and in the table.
std::string process_name(const Options &options);

Options parse_options(int argc, char **argv);
std::string help_text();
