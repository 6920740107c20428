// SPDX-License-Identifier: Apache-2.0
// Files of sessions, which exist as long as an object.
#pragma once

#include <filesystem>
#include <string>

// A new directory, which is removed with all that is in it.
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
