// SPDX-License-Identifier: Apache-2.0
// Another process of this program.
#pragma once

#include "channel.hpp"

#include <sys/types.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

// Both ends of a TCP connection over the loopback interface.
std::array<int, 2> connect_over_loopback();

// A process and the socket to it. It does not outlive this object.
class Child {
public:
    enum class Socket { local, tcp };  // TCP on the loopback interface: as between hosts, it cannot pass memory

    // Starts it. The arguments begin with the program's name; --socket is appended.
    explicit Child(std::vector<std::string> arguments, Socket socket = Socket::local);
    ~Child();  // kills it if it was not finished
    Child(const Child &) = delete;
    Child &operator=(const Child &) = delete;

    Channel &channel() { return *channel_; }
    // Waits for its end. Throws if it failed.
    void finish();
    // Stops the process (SIGSTOP). Its memory and its sockets remain, but it does not run.
    void freeze();
    void kill();  // does nothing if it was killed

private:
    int wait(int options);

    pid_t pid_ = -1;
    std::optional<Channel> channel_;
};
