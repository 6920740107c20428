// SPDX-License-Identifier: Apache-2.0
// One end of the socket pair between the two processes. A message has a kind and some bytes. An engine has its own
// control plane for this; it only has to send some blobs of kvmem to the other side.
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

    // Returns the next message, which must have this kind. Throws if the peer has failed or ended.
    std::string receive(Message kind, const Deadline &deadline);

    // Sends a share between two messages: kvmem sends its description and its memory over the socket.
    void send_share(const kvmem::Share &share, const Deadline &deadline);
    kvmem::Share receive_share(const Deadline &deadline);

    // Whether `receive` would return or throw without waiting: there is a message, or the peer has ended.
    bool readable() const;

private:
    void wait_for(short events, const Deadline &deadline) const;
    void write_all(const void *bytes, std::size_t size, const Deadline &deadline);
    void read_all(void *bytes, std::size_t size, const Deadline &deadline);

    int fd_;
};
