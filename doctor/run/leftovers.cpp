// SPDX-License-Identifier: Apache-2.0
#include "leftovers.hpp"

#include "../machine/files.hpp"

#include <dirent.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <set>
#include <string>

namespace doctor {

namespace {

// Only files that a process of the group creates: UCX's, by their name.
constexpr std::string_view directory = "/dev/shm/ucx_shm_posix_";

void add_mapped(pid_t process, std::set<std::string> &files) {
    for (const std::string &line : lines_of("/proc/" + std::to_string(process) + "/maps")) {
        const std::size_t start = line.find(directory);
        const bool has_name = line.find(" (deleted)") == std::string::npos;
        if (start != std::string::npos && has_name) files.insert(line.substr(start));
    }
}

}  // namespace

void remove_leftovers(pid_t group) {
    const std::unique_ptr<DIR, int (*)(DIR *)> processes(opendir("/proc"), closedir);
    if (!processes) return;
    std::set<std::string> files;
    while (const dirent *const entry = readdir(processes.get())) {
        const auto process = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10));
        if (process > 0 && getpgid(process) == group) add_mapped(process, files);
    }
    for (const std::string &file : files) unlink(file.c_str());
}

}  // namespace doctor
