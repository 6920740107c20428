// SPDX-License-Identifier: Apache-2.0
// Writes progress lines at intervals.
#include "progress.hpp"

#include "table.hpp"

#include <unistd.h>

#include <cstdio>

namespace {

using std::chrono::milliseconds;

// The first line is delayed, so that short steps print none.
constexpr milliseconds terminal_first{300}, terminal_every{100};
constexpr milliseconds log_first{5000}, log_every{5000};

constexpr char clear_line[] = "\r\033[K";

}  // namespace

Progress::Progress(std::string step, std::uint64_t total_bytes)
    : step_(std::move(step)), total_(total_bytes), terminal_(isatty(STDERR_FILENO) == 1),
      thread_(&Progress::run, this) {}

Progress::~Progress() {
    {
        const std::lock_guard lock(mutex_);
        over_ = true;
    }
    changed_.notify_one();
    thread_.join();
}

void Progress::run() {
    const Stopwatch stopwatch;
    bool shown = false;
    std::unique_lock lock(mutex_);
    auto pause = terminal_ ? terminal_first : log_first;
    while (!changed_.wait_for(lock, pause, [this] { return over_; })) {
        show(stopwatch.read());
        shown = true;
        pause = terminal_ ? terminal_every : log_every;
    }
    if (terminal_ && shown) std::fputs(clear_line, stderr);
}

void Progress::show(std::chrono::duration<double> elapsed) const {
    const std::uint64_t done = done_;
    std::string line = step_ + ": ";
    if (done > 0) line += format_bytes(done) + " of ";
    line += format_bytes(total_);
    // One write, because the other process may write too.
    std::fprintf(stderr, "%s%s, %.1f s%s", terminal_ ? clear_line : "", line.c_str(), elapsed.count(),
                 terminal_ ? "" : "\n");
}

void print(const std::string &rows) {
    if (rows.empty()) return;
    // One write: several processes may print rows.
    const std::string text = (isatty(STDOUT_FILENO) == 1 ? clear_line : "") + rows;
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
}
