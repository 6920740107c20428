// SPDX-License-Identifier: Apache-2.0
// The progress of a step, on stderr: on a terminal one line that is rewritten; otherwise a line at intervals, only for
// slow steps.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

// A separate thread prints it, so that a step can be one long call.
class Progress {
public:
    Progress(std::string step, std::uint64_t total_bytes);
    ~Progress();
    Progress(const Progress &) = delete;
    Progress &operator=(const Progress &) = delete;

    void add(std::uint64_t bytes) { done_ += bytes; }

private:
    void run();
    void show(std::chrono::duration<double> elapsed) const;

    const std::string step_;
    const std::uint64_t total_;
    const bool terminal_;
    std::atomic<std::uint64_t> done_{0};
    std::mutex mutex_;
    std::condition_variable changed_;
    bool over_ = false;
    std::thread thread_;  // last: it uses all of the above
};

// Prints rows of the table. Overwrites the progress line on a terminal.
void print(const std::string &rows);
