// SPDX-License-Identifier: Apache-2.0
// A socket between two processes that run this program. An engine has its own control plane for this.
#pragma once

#include <kvmem.hpp>

#include <string>

class Channel {
public:
    explicit Channel(int socket) : socket_(socket) {}
    ~Channel();
    Channel(Channel &&other) noexcept : socket_(other.socket_) { other.socket_ = -1; }
    Channel(const Channel &) = delete;
    Channel &operator=(const Channel &) = delete;

    void send(kvmem::Bytes message);
    std::string receive();
    int socket() const { return socket_; }

private:
    int socket_;
};

// Starts this program again, with the number of its socket as its argument. NIXL does not work after a bare fork.
class OtherProcess {
public:
    explicit OtherProcess(char *program);
    ~OtherProcess();
    OtherProcess(const OtherProcess &) = delete;
    OtherProcess &operator=(const OtherProcess &) = delete;

    Channel &channel() { return channel_; }
    bool succeeded();

private:
    OtherProcess(char *program, const int (&ends)[2]);

    Channel channel_;
    int pid_;
};
