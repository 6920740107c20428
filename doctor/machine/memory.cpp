// SPDX-License-Identifier: Apache-2.0
#include "memory.hpp"

#include "files.hpp"

#include <algorithm>
#include <limits>
#include <sstream>
#include <vector>

namespace doctor {

namespace {

// A mounted hierarchy of control groups that counts memory, and the directory of this process in it.
struct Hierarchy {
    bool is_unified = false;
    std::string mount;
    std::string directory;
};

std::vector<std::string> words_of(const std::string &line, char separator = ' ') {
    std::vector<std::string> words;
    std::istringstream stream(line);
    for (std::string word; std::getline(stream, word, separator);) words.push_back(word);
    return words;
}

bool contains(const std::vector<std::string> &words, const char *word) {
    return std::find(words.begin(), words.end(), word) != words.end();
}

// The path of this process in a hierarchy: /proc/self/cgroup has lines "4:memory:/path" and "0::/path".
std::optional<std::string> own_path(bool is_unified) {
    for (const std::string &line : lines_of("/proc/self/cgroup")) {
        const std::size_t first = line.find(':');
        const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const auto controllers = words_of(line.substr(first + 1, second - first - 1), ',');
        if (is_unified ? controllers.empty() : contains(controllers, "memory")) return line.substr(second + 1);
    }
    return {};
}

// A line of mountinfo: "id parent device root mount options ... - type source superoptions".
std::optional<Hierarchy> hierarchy_of(const std::string &line) {
    const auto words = words_of(line);
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 6 || words.end() - dash < 4) return {};
    const bool is_unified = dash[1] == "cgroup2";
    if (!is_unified && (dash[1] != "cgroup" || !contains(words_of(dash[3], ','), "memory"))) return {};
    const auto path = own_path(is_unified);
    if (!path) return {};
    // In a container the mount may begin at the container's own group.
    std::string below = *path;
    const std::string &root = words[3];
    if (root != "/" && below.compare(0, root.size(), root) == 0) below.erase(0, root.size());
    if (below == "/" || !exists(words[4] + below)) below.clear();
    return Hierarchy{is_unified, words[4], words[4] + below};
}

std::uint64_t droppable(const Hierarchy &hierarchy, const std::string &directory) {
    const std::string name = hierarchy.is_unified ? "inactive_file " : "total_inactive_file ";
    for (const std::string &line : lines_of(directory + "/memory.stat")) {
        if (line.compare(0, name.size(), name) == 0) return std::stoull("0" + line.substr(name.size()));
    }
    return 0;
}

std::optional<GroupMemory> memory_in(const Hierarchy &hierarchy, const std::string &directory) {
    const auto limit = number_of(directory + (hierarchy.is_unified ? "/memory.max" : "/memory.limit_in_bytes"));
    const auto used = number_of(directory + (hierarchy.is_unified ? "/memory.current" : "/memory.usage_in_bytes"));
    // The first version has a number near the maximum if there is no limit.
    if (!limit || !used || *limit > std::uint64_t(1) << 60) return {};
    const std::uint64_t cache = std::min(*used, droppable(hierarchy, directory));
    return GroupMemory{*limit, *used - cache};
}

}  // namespace

std::optional<GroupMemory> group_memory() {
    std::optional<GroupMemory> least;
    for (const std::string &line : lines_of("/proc/self/mountinfo")) {
        const auto hierarchy = hierarchy_of(line);
        if (!hierarchy) continue;
        for (std::string directory = hierarchy->directory;; directory.erase(directory.rfind('/'))) {
            const auto found = memory_in(*hierarchy, directory);
            if (found && (!least || found->available() < least->available())) least = found;
            if (directory.size() <= hierarchy->mount.size()) break;
        }
    }
    return least;
}

std::uint64_t available_memory() {
    const auto machine = kilobytes_of("/proc/meminfo", "MemAvailable");
    const auto group = group_memory();
    return std::min(machine.value_or(std::numeric_limits<std::uint64_t>::max()),
                    group ? group->available() : std::numeric_limits<std::uint64_t>::max());
}

}  // namespace doctor
