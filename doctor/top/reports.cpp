// SPDX-License-Identifier: Apache-2.0
#include "reports.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace doctor {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds patience(5);
// More than the trace of the most runs that a process keeps.
constexpr std::size_t max_report = std::size_t{64} << 20;

std::string named(pid_t process) { return "process " + std::to_string(process); }

[[noreturn]] void fail(pid_t process, const std::string &what) {
    throw ReportError(what + " of " + named(process) + ": " + std::strerror(errno));
}

// A socket that is connected to a process.
class Connection {
  public:
    explicit Connection(pid_t process)
        : process_(process), socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
        if (socket_ < 0) fail(process_, "open a socket for a report");
        try {
            connect();
            ensure_its();
        } catch (...) {
            close(socket_);
            throw;
        }
    }
    ~Connection() { close(socket_); }
    Connection(const Connection &) = delete;
    Connection &operator=(const Connection &) = delete;

    std::string read(ReportKind kind) {
        const char asked = static_cast<char>(kind);
        while (send(socket_, &asked, 1, MSG_NOSIGNAL) != 1) await(POLLOUT);
        std::string report;
        for (;;) {
            char bytes[65536];
            const ssize_t count = recv(socket_, bytes, sizeof bytes, 0);
            if (count == 0) return report;
            if (count < 0) {
                await(POLLIN);
                continue;
            }
            report.append(bytes, static_cast<std::size_t>(count));
            if (report.size() > max_report) throw ReportError("the report of " + named(process_) + " has no end");
        }
    }

  private:
    void connect() {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        const std::string name = "kvmem-reports-" + std::to_string(process_);
        // Behind a NUL, which makes it abstract.
        std::memcpy(address.sun_path + 1, name.data(), name.size());
        const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
        while (::connect(socket_, reinterpret_cast<const sockaddr *>(&address), size) != 0) {
            if (errno == ECONNREFUSED) {
                if (kill(process_, 0) != 0 && errno == ESRCH) {
                    throw ReportError("there is no " + named(process_) + " in this PID namespace");
                }
                throw ReportError(
                    named(process_) + " does not serve its statistics in this network namespace; it must call "
                    "kvmem_statistics_serve, or be a Python program with KVMEM_SERVE_STATISTICS=1 in its environment");
            }
            // As many clients as can wait do.
            if (errno == EAGAIN) {
                if (Clock::now() >= end_) throw ReportError(named(process_) + " has too many clients");
                poll(nullptr, 0, 10);
            } else if (errno != EINTR) {
                fail(process_, "connect to the reports");
            }
        }
    }

    // Any process can have the name of another one's socket.
    void ensure_its() const {
        ucred peer{};
        socklen_t size = sizeof peer;
        if (getsockopt(socket_, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) fail(process_, "get the server");
        if (peer.pid != process_) {
            throw ReportError("the socket for reports of " + named(process_) + " belongs to " + named(peer.pid));
        }
    }

    void await(short events) const {
        if (errno == EINTR) return;
        if (errno == ECONNRESET || errno == EPIPE) {
            throw ReportError(named(process_) + " gives user " + std::to_string(geteuid()) +
                              " no report; run kvmem-doctor as the user of the process");
        }
        if (errno != EAGAIN) fail(process_, "read a report");
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end_ - Clock::now());
        pollfd ready{socket_, events, 0};
        if (left.count() <= 0 || poll(&ready, 1, static_cast<int>(left.count())) == 0) {
            throw ReportError("the report of " + named(process_) + " is not complete after 5 s");
        }
    }

    pid_t process_;
    int socket_;
    Clock::time_point end_ = Clock::now() + patience;
};

}  // namespace

std::string read_report(pid_t process, ReportKind kind) {
    std::string report = Connection(process).read(kind);
    // The process closes the socket of a client that may not read, and of one that is late.
    const bool may_be_empty = kind == ReportKind::slowest_runs;
    if (report.empty() ? !may_be_empty : report.back() != '\n') {
        throw ReportError(named(process) + " has closed the socket before the end of its report; its user is another one, "
                                           "or its version of kvmem");
    }
    return report;
}

std::map<std::string, double> series_of(std::string_view text) {
    std::map<std::string, double> series;
    for (const std::string &line : split(text, '\n')) {
        const std::size_t space = line.rfind(' ');
        if (space == std::string::npos || line[0] == '#') continue;
        series[line.substr(0, space)] = std::strtod(line.c_str() + space, nullptr);
    }
    return series;
}

std::string label_of(std::string_view series, std::string_view name) {
    for (const char *const before : {"{", ","}) {
        const std::string start = before + std::string(name) + "=\"";
        const std::size_t found = series.find(start);
        if (found == std::string_view::npos) continue;
        const std::string_view value = series.substr(found + start.size());
        return std::string(value.substr(0, value.find('"')));
    }
    return {};
}

std::vector<std::string> split(std::string_view text, char separator) {
    std::vector<std::string> parts;
    while (!text.empty()) {
        const std::size_t end = text.find(separator);
        parts.emplace_back(text.substr(0, end));
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    }
    return parts;
}

}  // namespace doctor
