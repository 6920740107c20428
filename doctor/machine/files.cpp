// SPDX-License-Identifier: Apache-2.0
#include "files.hpp"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <memory>
#include <sstream>

namespace doctor {

namespace {

std::optional<std::uint64_t> number_in(const std::string &text) {
    std::uint64_t number = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
    if (read.ec != std::errc()) return {};
    return number;
}

}  // namespace

std::optional<std::string> text_of(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    if (!file || !(text << file.rdbuf())) return {};
    std::string all = text.str();
    while (!all.empty() && all.back() == '\n') all.pop_back();
    return all;
}

std::vector<std::string> lines_of(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
}

std::optional<std::uint64_t> number_of(const std::string &path) {
    const auto text = text_of(path);
    return text ? number_in(*text) : std::nullopt;
}

std::optional<std::string> field_of(const std::string &path, const std::string &name) {
    for (const std::string &line : lines_of(path)) {
        if (line.compare(0, name.size(), name) != 0 || line.size() <= name.size() || line[name.size()] != ':') continue;
        const std::size_t start = line.find_first_not_of(" \t", name.size() + 1);
        return start == std::string::npos ? std::string() : line.substr(start);
    }
    return {};
}

std::optional<std::uint64_t> kilobytes_of(const std::string &path, const std::string &name) {
    const auto text = field_of(path, name);
    const auto number = text ? number_in(*text) : std::nullopt;
    if (!number) return {};
    return *number * 1024;
}

std::vector<std::string> names_in(const std::string &directory) {
    std::vector<std::string> names;
    const std::unique_ptr<DIR, int (*)(DIR *)> open(opendir(directory.c_str()), closedir);
    while (const dirent *const entry = open ? readdir(open.get()) : nullptr) {
        if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
    }
    std::sort(names.begin(), names.end());
    return names;
}

bool exists(const std::string &path) { return access(path.c_str(), F_OK) == 0; }

}  // namespace doctor
