// SPDX-License-Identifier: Apache-2.0
// fork and exec of this very program, before NIXL is anywhere near: UCX does not survive a bare fork.
#include "launch.hpp"

#include "deadline.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <system_error>
#include <vector>

namespace {

// How much longer than a child's own deadline the parent waits, and how long a survivor may mourn.
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
[[noreturn]] void become(char *const *arguments, int socket, pid_t parent) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent && fcntl(socket, F_SETFD, 0) == 0) {
        execv("/proc/self/exe", arguments);
    }
    std::perror("cannot start the child process");
    _exit(EXIT_FAILURE);
}

pid_t start(int argc, char **argv, const char *role, int socket) {
    std::string role_argument = std::string("--role=") + role;
    std::string socket_argument = "--socket=" + std::to_string(socket);
    std::vector<char *> arguments(argv, argv + argc);
    arguments.insert(arguments.end(), {role_argument.data(), socket_argument.data(), nullptr});
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid < 0) throw_errno("fork");
    if (pid == 0) become(arguments.data(), socket, parent);
    return pid;
}

// Waits until one of the children has ended, at most a slice of the deadline.
void wait_for_any(Child *const (&children)[2], const Deadline &deadline) {
    pollfd entries[2];
    for (int i = 0; i < 2; ++i) entries[i] = {children[i]->running() ? children[i]->watch() : -1, POLLIN, 0};
    poll(entries, 2, deadline.left_ms(std::chrono::seconds(1)));
    for (int i = 0; i < 2; ++i) {
        if (entries[i].revents != 0) children[i]->reap();
    }
}

bool wait_for_both(Child &prefill, Child &decode, Deadline deadline) {
    Child *const children[2] = {&prefill, &decode};
    bool mourning = false;
    while (prefill.running() || decode.running()) {
        if (deadline.passed()) {
            std::fputs("out of time: ending what still runs\n", stderr);
            prefill.end();
            decode.end();
            break;
        }
        wait_for_any(children, deadline);
        const bool one_failed = (!prefill.running() && !prefill.succeeded()) ||
                                (!decode.running() && !decode.succeeded());
        if (one_failed && !mourning) {
            mourning = true;
            deadline = Deadline(grace);
        }
    }
    return prefill.succeeded() && decode.succeeded();
}

}  // namespace

bool run_both(int argc, char **argv, const Options &options) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw_errno("socketpair");
    Child prefill("prefill", start(argc, argv, "prefill", ends[0]));
    Child decode("decode", start(argc, argv, "decode", ends[1]));
    // From here each end has one holder, so that a process that dies is seen by the other.
    close(ends[0]);
    close(ends[1]);
    return wait_for_both(prefill, decode, Deadline(std::chrono::seconds(options.timeout) + grace));
}
