// SPDX-License-Identifier: Apache-2.0
// Messages with their size in front, over a Unix socket.
#include "channel.hpp"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <system_error>

namespace {

[[noreturn]] void fail(const char *what) { throw std::system_error(errno, std::generic_category(), what); }

void send_all(int socket, const void *bytes, std::size_t size) {
    for (auto next = static_cast<const char *>(bytes); size > 0;) {
        const ssize_t sent = ::send(socket, next, size, MSG_NOSIGNAL);
        if (sent < 0) fail("send");
        next += sent;
        size -= static_cast<std::size_t>(sent);
    }
}

void receive_all(int socket, void *bytes, std::size_t size) {
    for (auto next = static_cast<char *>(bytes); size > 0;) {
        const ssize_t received = recv(socket, next, size, 0);
        if (received < 0) fail("receive");
        if (received == 0) throw std::runtime_error("the other process has ended");
        next += received;
        size -= static_cast<std::size_t>(received);
    }
}

struct Ends {
    Ends() {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) fail("socketpair");
    }
    int ends[2];
};

}  // namespace

Channel::~Channel() {
    if (socket_ >= 0) close(socket_);
}

void Channel::send(kvmem::Bytes message) {
    const std::uint64_t size = message.size();
    send_all(socket_, &size, sizeof size);
    send_all(socket_, message.data(), message.size());
}

std::string Channel::receive() {
    std::uint64_t size = 0;
    receive_all(socket_, &size, sizeof size);
    std::string message(size, '\0');
    receive_all(socket_, message.data(), message.size());
    return message;
}

OtherProcess::OtherProcess(char *program) : OtherProcess(program, Ends().ends) {}

OtherProcess::OtherProcess(char *program, const int (&ends)[2]) : channel_(ends[0]), pid_(fork()) {
    if (pid_ == 0) {
        close(ends[0]);
        const std::string number = std::to_string(ends[1]);
        execl("/proc/self/exe", program, number.c_str(), static_cast<char *>(nullptr));
        _exit(127);
    }
    close(ends[1]);
    if (pid_ < 0) fail("fork");
}

OtherProcess::~OtherProcess() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
}

bool OtherProcess::succeeded() {
    int status = 0;
    if (waitpid(pid_, &status, 0) != pid_) fail("waitpid");
    pid_ = -1;
    return WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS;
}
