// SPDX-License-Identifier: Apache-2.0
#include "child.hpp"

#include "leftovers.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <stdexcept>

namespace doctor {

namespace {

using Clock = std::chrono::steady_clock;

// The maximum size of a report. A check that reports more is faulty.
constexpr std::size_t max_bytes = 16 << 20;
// The part of the libraries' messages that is kept.
constexpr std::size_t max_printed = 4096;
// The timeout for the end of a killed process.
constexpr std::chrono::seconds patience(2);

class File {
public:
    File() = default;
    explicit File(int fd) : fd_(fd) {}
    File(File &&other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    File &operator=(File &&other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~File() { close(); }

    int get() const { return fd_; }
    bool is_open() const { return fd_ >= 0; }
    void close() {
        if (fd_ >= 0) ::close(fd_);
        fd_ = -1;
    }

private:
    int fd_ = -1;
};

struct Pipe {
    File read, write;

    Pipe() {
        int fds[2];
        if (pipe2(fds, O_CLOEXEC) != 0) {
            throw std::runtime_error(std::string("a pipe cannot be created: ") + std::strerror(errno));
        }
        read = File(fds[0]);
        write = File(fds[1]);
    }
};

// ---- In the child ----

void prepare_child(pid_t parent, const Pipe &printed) {
    // A separate process group, so that its children can be killed with it. The kernel kills it when the doctor ends.
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    // No core files. With 1 the kernel calls no program for them either.
    const rlimit none = {1, 1};
    setrlimit(RLIMIT_CORE, &none);
    // Messages that libraries print are not a part of the report.
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(nothing, STDIN_FILENO);
    dup2(printed.write.get(), STDOUT_FILENO);
    dup2(printed.write.get(), STDERR_FILENO);
}

[[noreturn]] void be_child(const Work &work, const Pipe &messages) {
    Reporter reporter(messages.write.get());
    try {
        work(reporter);
        reporter.end();
    } catch (const std::exception &error) {
        reporter.failure(error.what());
    }
    // Without the code that libraries run at exit, which may fail.
    _exit(0);
}

// ---- In the parent ----

class Messages {
public:
    explicit Messages(Outcome &outcome) : outcome_(outcome) {}

    void take(std::string_view bytes) {
        buffer_ += bytes;
        std::uint64_t size;
        while (buffer_.size() >= sizeof size) {
            std::memcpy(&size, buffer_.data(), sizeof size);
            if (size > max_bytes || buffer_.size() - sizeof size < size) return;
            if (const auto message = Value::decode(std::string_view(buffer_).substr(sizeof size, size))) {
                read(*message);
            }
            buffer_.erase(0, sizeof size + size);
        }
    }
    bool is_too_much() const { return buffer_.size() > max_bytes; }

private:
    void read(const Value &message) {
        if (const Value *const step = message.find("step")) outcome_.step = step->text();
        if (const Value *const finding = message.find("finding")) {
            outcome_.findings.push_back(Finding::from_value(*finding));
        }
        if (const Value *const route = message.find("route")) outcome_.routes.push_back(Route::from_value(*route));
        if (const Value *const failure = message.find("failure")) outcome_.failure = failure->text();
        if (message.find("end")) outcome_.is_complete = true;
    }

    Outcome &outcome_;
    std::string buffer_;
};

// Reads the available bytes, and closes the file at its end.
template <typename Take>
void drain(File &file, Take take) {
    char bytes[1 << 16];
    const ssize_t size = read(file.get(), bytes, sizeof bytes);
    if (size > 0) {
        take(std::string_view(bytes, static_cast<std::size_t>(size)));
    } else if (size == 0 || errno != EINTR) {
        file.close();
    }
}

int milliseconds_until(Clock::time_point end) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    return static_cast<int>(std::max<std::int64_t>(0, left.count()));
}

// Waits for the end of the child, and returns whether it came in time.
bool reaped(pid_t child, int &status, Clock::time_point deadline) {
    for (;;) {
        const pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended == child || (ended < 0 && errno != EINTR)) return true;
        if (Clock::now() >= deadline) return false;
        poll(nullptr, 0, 5);
    }
}

std::string last_line(std::string_view text) {
    while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
    const std::size_t start = text.rfind('\n');
    return std::string(start == std::string_view::npos ? text : text.substr(start + 1));
}

std::string signal_name(int signal) {
    const char *const name = sigabbrev_np(signal);
    return name ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

}  // namespace

Outcome run_in_child(const Work &work, std::chrono::milliseconds limit) {
    Outcome outcome;
    Pipe messages, printed;
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child < 0) {
        outcome.failure = std::string("no process could be started: ") + std::strerror(errno);
        return outcome;
    }
    if (child == 0) {
        prepare_child(parent, printed);
        be_child(work, messages);
    }
    setpgid(child, child);
    messages.write.close();
    printed.write.close();

    Messages received(outcome);
    std::string words;
    const auto deadline = Clock::now() + limit;
    while (messages.read.is_open() && !outcome.is_complete && Clock::now() < deadline && !received.is_too_much()) {
        pollfd ready[] = {{messages.read.get(), POLLIN, 0}, {printed.read.get(), POLLIN, 0}};
        if (poll(ready, 2, milliseconds_until(deadline)) <= 0) continue;
        if (ready[0].revents != 0) drain(messages.read, [&](std::string_view bytes) { received.take(bytes); });
        if (printed.read.is_open() && ready[1].revents != 0) {
            drain(printed.read, [&](std::string_view bytes) {
                words += bytes;
                if (words.size() > max_printed) words.erase(0, words.size() - max_printed);
            });
        }
    }

    // After its last message, or a pipe that was closed, the child ends by itself.
    int status = 0;
    const bool was_in_time = !messages.read.is_open() || outcome.is_complete;
    bool has_ended = was_in_time && reaped(child, status, std::min(deadline, Clock::now() + patience));
    if (!has_ended) {
        remove_leftovers(child);
        kill(-child, SIGKILL);
        has_ended = reaped(child, status, Clock::now() + patience);
    } else {
        kill(-child, SIGKILL);
    }
    if (outcome.is_complete || !outcome.failure.empty()) return outcome;

    const std::string during = outcome.step.empty() ? "" : " while it was to " + outcome.step;
    if (!was_in_time) {
        outcome.failure = "it did not end within " + std::to_string(limit.count() / 1000) + " s" + during;
        if (!has_ended) outcome.failure += ", and cannot be killed (process " + std::to_string(child) + ")";
    } else if (has_ended && WIFSIGNALED(status)) {
        outcome.failure = "its process ended by " + signal_name(WTERMSIG(status)) + during;
    } else {
        outcome.failure = "its process ended" + during;
    }
    if (const std::string last = last_line(words); !last.empty()) outcome.failure += ": " + last;
    return outcome;
}

}  // namespace doctor
