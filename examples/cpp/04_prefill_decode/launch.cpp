// SPDX-License-Identifier: Apache-2.0
// fork and exec of this program, before NIXL is loaded: UCX does not support a fork without exec.
#include "launch.hpp"

#include "deadline.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

namespace {

// The time that the parent waits after a child's own deadline, and that a process has to end after another one has
// failed.
constexpr std::chrono::seconds grace{10};

[[noreturn]] void throw_errno(const char *what) {
    throw std::system_error(errno, std::generic_category(), what);
}

class Child {
public:
    Child(std::string name, pid_t pid) : name_(std::move(name)), pid_(pid) {
        watch_ = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
        if (watch_ < 0) {
            const int error = errno;
            end();
            throw std::system_error(error, std::generic_category(), "pidfd_open");
        }
    }
    ~Child() {
        end();
        if (watch_ >= 0) close(watch_);
    }
    Child(const Child &) = delete;
    Child &operator=(const Child &) = delete;

    bool running() const { return pid_ > 0; }
    bool succeeded() const { return !running() && WIFEXITED(status_) && WEXITSTATUS(status_) == 0; }
    int watch() const { return watch_; }

    void reap() {
        if (waitpid(pid_, &status_, 0) != pid_) return;
        pid_ = -1;
        if (WIFSIGNALED(status_)) {
            std::fprintf(stderr, "%s: ended by signal %d\n", name_.c_str(), WTERMSIG(status_));
        }
    }

    void end() {
        if (!running()) return;
        kill(pid_, SIGKILL);
        reap();
    }

private:
    std::string name_;
    pid_t pid_;
    int watch_ = -1;
    int status_ = 0;
};

// In the child, between fork and exec. A child never outlives its parent.
[[noreturn]] void become(char *const *arguments, const std::vector<int> &sockets, pid_t parent) {
    bool ready = prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent;
    for (const int socket : sockets) ready = ready && fcntl(socket, F_SETFD, 0) == 0;
    if (ready) execv("/proc/self/exe", arguments);
    std::perror("cannot start the child process");
    _exit(EXIT_FAILURE);
}

// The ends of the socket pairs that one process has.
using Sockets = std::vector<int>;

pid_t start(int argc, char **argv, const Options &child, const Sockets &sockets) {
    std::string list;
    for (const int socket : sockets) list += (list.empty() ? "" : ",") + std::to_string(socket);
    std::string of_role = std::string("--role=") + (child.role == Role::prefill ? "prefill" : "decode");
    std::string of_rank = "--rank=" + std::to_string(child.rank);
    std::string of_sockets = "--sockets=" + list;
    std::vector<char *> arguments(argv, argv + argc);
    arguments.insert(arguments.end(), {of_role.data(), of_rank.data(), of_sockets.data(), nullptr});
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid < 0) throw_errno("fork");
    if (pid == 0) become(arguments.data(), sockets, parent);
    return pid;
}

using Children = std::vector<std::unique_ptr<Child>>;

// Starts one process for each list of sockets.
void start_side(int argc, char **argv, Options options, Role role, const std::vector<Sockets> &side,
                Children &children) {
    options.role = role;
    for (options.rank = 0; options.rank < side.size(); ++options.rank) {
        const pid_t pid = start(argc, argv, options, side[options.rank]);
        children.push_back(std::make_unique<Child>(process_name(options), pid));
    }
}

// Waits until one of the children has ended, at most a slice of the deadline.
void wait_for_any(const Children &children, const Deadline &deadline) {
    std::vector<pollfd> entries;
    for (const auto &child : children) entries.push_back({child->running() ? child->watch() : -1, POLLIN, 0});
    poll(entries.data(), entries.size(), deadline.left_ms(std::chrono::seconds(1)));
    for (std::size_t i = 0; i < entries.size(); ++i) {
        if (entries[i].revents != 0) children[i]->reap();
    }
}

bool wait_for_all(const Children &children, Deadline deadline) {
    const auto running = [](const auto &child) { return child->running(); };
    const auto succeeded = [](const auto &child) { return child->succeeded(); };
    bool mourning = false;
    while (std::any_of(children.begin(), children.end(), running)) {
        if (deadline.passed()) {
            std::fputs("the deadline has passed: killing the processes that still run\n", stderr);
            for (const auto &child : children) child->end();
            break;
        }
        wait_for_any(children, deadline);
        const bool one_failed = std::any_of(children.begin(), children.end(), [&](const auto &child) {
            return !running(child) && !succeeded(child);
        });
        if (one_failed && !mourning) {
            mourning = true;
            deadline = Deadline(grace);
        }
    }
    return std::all_of(children.begin(), children.end(), succeeded);
}

}  // namespace

bool run_all(int argc, char **argv, const Options &options) {
    std::vector<Sockets> prefill(options.reshard ? options.prefill_ranks : 1);
    std::vector<Sockets> decode(options.reshard ? options.decode_ranks : 1);
    for (Sockets &of_prefill : prefill) {
        for (Sockets &of_decode : decode) {
            int ends[2];
            if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw_errno("socketpair");
            of_prefill.push_back(ends[0]);
            of_decode.push_back(ends[1]);
        }
    }
    Children children;
    start_side(argc, argv, options, Role::prefill, prefill, children);
    start_side(argc, argv, options, Role::decode, decode, children);
    // From here on each end is open in one process only, so that the others notice when that process ends.
    for (const auto &side : {prefill, decode}) {
        for (const Sockets &sockets : side) {
            for (const int socket : sockets) close(socket);
        }
    }
    return wait_for_all(children, Deadline(std::chrono::seconds(options.timeout) + grace));
}
