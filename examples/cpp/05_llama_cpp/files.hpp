// SPDX-License-Identifier: Apache-2.0
// Temporary files of sessions.
#pragma once

#include <filesystem>
#include <string>

// A new directory. The destructor removes it with its files.
class SessionFiles {
public:
    explicit SessionFiles(const std::filesystem::path &parent);
    ~SessionFiles();
    SessionFiles(const SessionFiles &) = delete;
    SessionFiles &operator=(const SessionFiles &) = delete;

    const std::filesystem::path &directory() const { return directory_; }

private:
    std::filesystem::path directory_;
};
