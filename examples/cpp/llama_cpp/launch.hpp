// SPDX-License-Identifier: Apache-2.0
// Starts this program again as another process.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

class Child {
public:
    Child(pid_t pid, int socket) : pid_(pid), socket_(socket) {}
    Child(Child &&other) noexcept : pid_(other.pid_), socket_(other.socket_) { other.pid_ = -1; }
    Child &operator=(Child &&) = delete;
    ~Child();  // waits for its end

    int socket() const { return socket_; }
    void kill();

private:
    pid_t pid_;
    int socket_;
};

// The arguments start with the program's name; --socket is appended. By fork and exec before NIXL is loaded in the child.
Child start_child(std::vector<std::string> arguments);
