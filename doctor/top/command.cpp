// SPDX-License-Identifier: Apache-2.0
#include "command.hpp"

#include "../options.hpp"
#include "../report/text.hpp"
#include "reports.hpp"
#include "view.hpp"

#include <charconv>
#include <chrono>
#include <string_view>
#include <thread>

namespace doctor {

namespace {

constexpr char help_text[] = R"(Usage: kvmem-doctor top [--interval=SECONDS] [--count=N] PID
       kvmem-doctor top --trace PID > trace.json
Shows what a process moves by kvmem: bytes and runs per second by method, memory, failed calls, what runs wait for,
and the slowest runs with their phases. The process must have called kvmem_statistics_serve, or be a Python program
with KVMEM_SERVE_STATISTICS=1 in its environment. Its user and root may read it.

  --interval=SECONDS  between two views, 1 to 3600; 1 without it
  --count=N           ends after N views; without it, when it is interrupted
  --trace             prints the last runs in Chrome's trace format, for ui.perfetto.dev

Exit status:
  0  the views were printed
  1  the process cannot be read
  2  the command line is wrong
  3  it could not be written
)";

struct TopOptions {
    pid_t process = 0;
    long interval = 1;
    // 0: without end.
    long count = 0;
    bool wants_trace = false, wants_help = false;
};

long number(std::string_view text, long most, const std::string &what) {
    long value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > most) {
        throw UsageError("top: " + what + " is '" + std::string(text) + "', and must be 1 to " + std::to_string(most));
    }
    return value;
}

TopOptions parsed(int argc, char **argv) {
    TopOptions options;
    for (int i = 1; i < argc; ++i) {
        const std::string_view argument = argv[i];
        const auto value = [&](std::string_view name) { return argument.substr(name.size()); };
        if (argument == "--help" || argument == "-h") options.wants_help = true;
        else if (argument == "--trace") options.wants_trace = true;
        else if (argument.rfind("--interval=", 0) == 0) options.interval = number(value("--interval="), 3600, "--interval");
        else if (argument.rfind("--count=", 0) == 0) options.count = number(value("--count="), 1'000'000, "--count");
        else if (options.process != 0 || argument.rfind("-", 0) == 0) {
            throw UsageError("top: '" + std::string(argument) + "' is no option; give one PID");
        } else options.process = static_cast<pid_t>(number(argument, 0x7fffffff, "PID"));
    }
    if (options.process == 0 && !options.wants_help) throw UsageError("top: give the PID of a process");
    return options;
}

// What another process has sent must not change the terminal.
std::string shown(const std::string &text) {
    std::string lines;
    for (const std::string &line : split(text, '\n')) lines += printable(line) + "\n";
    return lines;
}

}  // namespace

void top(int argc, char **argv, bool is_terminal, const std::function<bool(const std::string &)> &show) {
    const TopOptions options = parsed(argc, argv);
    if (options.wants_help) return static_cast<void>(show(help_text));
    if (options.wants_trace) return static_cast<void>(show(read_report(options.process, ReportKind::trace)));
    using Clock = std::chrono::steady_clock;
    auto before = series_of(read_report(options.process, ReportKind::statistics));
    auto since = Clock::now();
    for (long views = 0; options.count == 0 || views < options.count; ++views) {
        std::this_thread::sleep_until(since + std::chrono::seconds(options.interval));
        auto after = series_of(read_report(options.process, ReportKind::statistics));
        const std::string slowest = read_report(options.process, ReportKind::slowest_runs);
        const auto now = Clock::now();
        const double seconds = std::chrono::duration<double>(now - since).count();
        const std::string title = "process " + std::to_string(options.process) + "\n";
        const char *const start = is_terminal ? "\x1b[H\x1b[2J" : views > 0 ? "\n" : "";
        if (!show(start + shown(title + view(before, after, seconds, slowest)))) return;
        before = std::move(after);
        since = now;
    }
}

}  // namespace doctor
