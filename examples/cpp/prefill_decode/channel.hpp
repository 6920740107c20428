// SPDX-License-Identifier: Apache-2.0
// One end of the socket pair between the two processes: messages of a kind and some bytes. An engine has its
// own control plane for this; kvmem needs only that a few blobs reach the other side.
#pragma once

#include "deadline.hpp"

#include <cstddef>
#include <cstdint>
#include <kvmem.hpp>
#include <string>
#include <string_view>

enum class Message : std::uint32_t {
    metadata = 1,
    layout,
    share,
    opened,
    blocks,
    rows,
    pulled,
    released,
    done,
    failure,
};

class Channel {
public:
    explicit Channel(int fd) : fd_(fd) {}
    ~Channel();
    Channel(const Channel &) = delete;
    Channel &operator=(const Channel &) = delete;

    void send(Message kind, std::string_view bytes, const Deadline &deadline);

    // The next message, which has to be of that kind. Throws when the peer failed or went away.
    std::string receive(Message kind, const Deadline &deadline);

    // A share between two messages: kvmem sends what it is made of, memory included, over the socket.
    void send_share(const kvmem::Share &share, const Deadline &deadline);
    kvmem::Share receive_share(const Deadline &deadline);

    // Whether receive would find something at once: a message, or that the peer is gone.
    bool readable() const;

private:
    void wait_for(short events, const Deadline &deadline) const;
    void write_all(const void *bytes, std::size_t size, const Deadline &deadline);
    void read_all(void *bytes, std::size_t size, const Deadline &deadline);

    int fd_;
};
