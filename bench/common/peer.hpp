// SPDX-License-Identifier: Apache-2.0
// The second process of a bench: this program started again, with a channel of messages between the two.
#pragma once

#include <optional>
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
    // The socket, for those who send more than bytes, between two messages.
    int fd() const { return fd_; }

  private:
    bool read_exactly(void *data, size_t size);

    int fd_;
};

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
