// SPDX-License-Identifier: Apache-2.0
// The second process of a bench: this program started again, with a channel of messages between the two.
#pragma once

#include "common/kv.hpp"

#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <sys/types.h>
#include <vector>

namespace bench {

// Whole messages over one Unix socket, which it owns.
class channel {
  public:
    explicit channel(int fd) : fd_(fd) {}
    ~channel();
    channel(channel &&other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
    channel(const channel &) = delete;
    channel &operator=(const channel &) = delete;

    void send(const void *data, size_t size);
    template <typename Bytes> void send(const Bytes &message) { send(message.data(), message.size()); }
    // The next message; nothing once the other side has closed.
    std::optional<std::vector<unsigned char>> receive_or_end();
    std::vector<unsigned char> receive();
    // From now on a receive that gets nothing for so long throws.
    void give_up_after(int seconds);
    // For a share between two messages, from the other end's.
    void send_share(const kv::share &given);
    kv::share receive_share();
    // The socket, for those who send file descriptors, between two messages.
    int fd() const { return fd_; }

  private:
    bool read_exactly(void *data, size_t size);

    int fd_;
    uint64_t patience_ns_ = KVMEM_TIMEOUT_FOREVER;
};

// UCX uses only TCP in agents that this process and its peers create from now on. Where the CUDA driver is installed, NIXL refuses
// transports that cannot move GPU memory, so that copies to and from it are allowed there too.
void use_only_tcp();

// Both processes are one program, so that plain values travel as they lie in memory.
template <typename Value> void send_value(channel &link, const Value &value)
{
    link.send(&value, sizeof value);
}

template <typename Value> Value value_of(const std::vector<unsigned char> &message)
{
    Value value;
    if (message.size() != sizeof value)
        throw std::runtime_error("a message of " + std::to_string(message.size()) +
                                 " bytes was not expected");
    std::memcpy(&value, message.data(), sizeof value);
    return value;
}

// This program, started again as `program --peer <arguments>`.
class peer {
  public:
    explicit peer(const std::vector<std::string> &arguments);
    // Closes the channel, which tells the peer to end, and waits for it; throws nothing.
    ~peer();
    peer(const peer &) = delete;
    peer &operator=(const peer &) = delete;

    channel &link() { return *link_; }
    pid_t pid() const { return pid_; }

  private:
    pid_t pid_ = -1;
    std::optional<channel> link_;
};

// In the peer: its end of the channel.
channel parent_channel();

} // namespace bench
