// SPDX-License-Identifier: Apache-2.0
// By posix_spawn rather than fork: threads of NIXL and llama.cpp may run in this process.
#include "child.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <stdexcept>
#include <system_error>

Child::Child(std::vector<std::string> arguments) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) {
        throw std::system_error(errno, std::generic_category(), "socketpair");
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
