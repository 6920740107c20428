// SPDX-License-Identifier: Apache-2.0
#include "launch.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>

Child start_child(std::vector<std::string> arguments) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) {
        throw std::system_error(errno, std::generic_category(), "socketpair");
    }
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    arguments.push_back("--socket=" + std::to_string(ends[1]));
    std::vector<char *> raw;
    for (std::string &argument : arguments) raw.push_back(argument.data());
    raw.push_back(nullptr);
    pid_t pid = -1;
    const int error = posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, raw.data(), environ);
    close(ends[1]);
    if (error != 0) {
        close(ends[0]);
        throw std::system_error(error, std::generic_category(), "posix_spawn");
    }
    return Child(pid, ends[0]);
}

void Child::kill() { ::kill(pid_, SIGKILL); }

Child::~Child() {
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
}
