// SPDX-License-Identifier: Apache-2.0
// By posix_spawn rather than fork: threads of NIXL and llama.cpp may run in this process.
#include "child.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace {

void check(int result, const char *function) {
    if (result < 0) throw std::system_error(errno, std::generic_category(), function);
}

// A descriptor that is closed unless it is released.
class Descriptor {
public:
    explicit Descriptor(int fd) : fd_(fd) { check(fd, "socket"); }
    ~Descriptor() {
        if (fd_ >= 0) close(fd_);
    }
    Descriptor(const Descriptor &) = delete;
    Descriptor &operator=(const Descriptor &) = delete;

    int fd() const { return fd_; }
    int release() { return std::exchange(fd_, -1); }

private:
    int fd_;
};

// Small messages alternate, so none may wait for more bytes (TCP_NODELAY).
void send_at_once(int fd) {
    const int yes = 1;
    check(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes), "setsockopt");
}

}  // namespace

std::array<int, 2> connect_over_loopback() {
    const Descriptor listener(socket(AF_INET, SOCK_STREAM, 0));
    Descriptor near(socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto *raw = reinterpret_cast<sockaddr *>(&address);
    check(bind(listener.fd(), raw, size), "bind");
    check(listen(listener.fd(), 1), "listen");
    check(getsockname(listener.fd(), raw, &size), "getsockname");
    check(connect(near.fd(), raw, size), "connect");
    Descriptor far(accept(listener.fd(), nullptr, nullptr));
    send_at_once(near.fd());
    send_at_once(far.fd());
    return {near.release(), far.release()};
}

Child::Child(std::vector<std::string> arguments, Socket socket) {
    std::array<int, 2> ends;
    if (socket == Socket::tcp) {
        ends = connect_over_loopback();
    } else {
        check(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), "socketpair");
    }
    channel_.emplace(ends[0]);
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    arguments.push_back("--socket=" + std::to_string(ends[1]));
    std::vector<char *> raw;
    for (std::string &argument : arguments) raw.push_back(argument.data());
    raw.push_back(nullptr);
    const int error = posix_spawn(&pid_, "/proc/self/exe", nullptr, nullptr, raw.data(), environ);
    close(ends[1]);
    if (error != 0) throw std::system_error(error, std::generic_category(), "posix_spawn");
}

Child::~Child() { kill(); }

int Child::wait(int options) {
    int status = 0;
    while (waitpid(pid_, &status, options) < 0) {
        if (errno != EINTR) throw std::system_error(errno, std::generic_category(), "waitpid");
    }
    return status;
}

void Child::finish() {
    channel_->receive_end();
    const int status = wait(0);
    pid_ = -1;
    if (WIFSIGNALED(status)) {
        throw std::runtime_error("the other process was ended by signal " + std::to_string(WTERMSIG(status)));
    }
    if (WEXITSTATUS(status) != 0) {
        throw std::runtime_error("the other process failed with exit status " + std::to_string(WEXITSTATUS(status)));
    }
}

void Child::freeze() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGSTOP);
    if (!WIFSTOPPED(wait(WUNTRACED))) throw std::runtime_error("the other process ended too early");
}

void Child::kill() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
}
