// SPDX-License-Identifier: Apache-2.0
// The second process of a bench: the same program, with a channel of messages between the two.
#pragma once

#include "common/kv.hpp"

#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <sys/types.h>
#include <vector>

namespace bench {

// Messages over a Unix socket, which the channel owns.
class channel {
  public:
    explicit channel(int fd) : fd_(fd) {}
    ~channel();
    channel(channel &&other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
    channel(const channel &) = delete;
    channel &operator=(const channel &) = delete;

    void send(const void *data, size_t size);
    template <typename Bytes> void send(const Bytes &message) { send(message.data(), message.size()); }
    // Returns the next message, or nothing if the other end is closed.
    std::optional<std::vector<unsigned char>> receive_or_end();
    std::vector<unsigned char> receive();
    // Later calls that receive nothing for `seconds` throw.
    void set_timeout(int seconds);
    // A share is sent and received between two messages.
    void send_share(const kv::share &given);
    kv::share receive_share();
    // The socket, to send file descriptors between two messages.
    int fd() const { return fd_; }

  private:
    bool read_exactly(void *data, size_t size);

    int fd_;
    uint64_t timeout_ns_ = KVMEM_TIMEOUT_FOREVER;
};

// Makes UCX use only TCP, in agents that this process and its peers create later. If the CUDA driver is installed, NIXL
// rejects transports that cannot move GPU memory, so UCX's copies to and from it are allowed too.
void use_only_tcp();

// Both processes are one program, so a value is sent as its bytes.
template <typename Value> void send_value(channel &link, const Value &value)
{
    link.send(&value, sizeof value);
}

template <typename Value> Value value_of(const std::vector<unsigned char> &message)
{
    Value value;
    if (message.size() != sizeof value)
        throw std::runtime_error("the message has " + std::to_string(message.size()) + " bytes instead of " +
                                 std::to_string(sizeof value));
    std::memcpy(&value, message.data(), sizeof value);
    return value;
}

// This program, started again as `program --peer <arguments>`.
class peer {
  public:
    explicit peer(const std::vector<std::string> &arguments);
    // Closes the channel, which makes the peer exit, and waits for it. Does not throw.
    ~peer();
    peer(const peer &) = delete;
    peer &operator=(const peer &) = delete;

    channel &link() { return *link_; }
    pid_t pid() const { return pid_; }

  private:
    pid_t pid_ = -1;
    std::optional<channel> link_;
};

// Returns the peer's end of the channel.
channel parent_channel();

} // namespace bench
