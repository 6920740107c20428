// SPDX-License-Identifier: Apache-2.0
// Frames on a Unix stream socket; every wait ends at the deadline.
#include "channel.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>

namespace {

// Both ends are one program on one machine, so the header is sent as it is stored in memory.
struct Header {
    std::uint32_t kind;
    std::uint32_t reserved;
    std::uint64_t size;
};

constexpr std::uint64_t largest_message = 64u << 20;

[[noreturn]] void throw_errno(const char *what) {
    throw std::system_error(errno, std::generic_category(), what);
}

[[noreturn]] void throw_gone() {
    throw std::runtime_error("the other process has ended");
}

// Returns the bytes that a socket call moved: 0 if it was interrupted, or the socket was not ready.
std::size_t moved(ssize_t result) {
    if (result >= 0) return static_cast<std::size_t>(result);
    if (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno == EPIPE || errno == ECONNRESET) throw_gone();
    throw_errno("I/O on the socket to the other process");
}

}  // namespace

Channel::~Channel() {
    close(fd_);
}

void Channel::send(Message kind, std::string_view bytes, const Deadline &deadline) {
    const Header header = {static_cast<std::uint32_t>(kind), 0, bytes.size()};
    write_all(&header, sizeof header, deadline);
    write_all(bytes.data(), bytes.size(), deadline);
}

std::string Channel::receive(Message kind, const Deadline &deadline) {
    Header header{};
    read_all(&header, sizeof header, deadline);
    if (header.size > largest_message) throw std::runtime_error("the other process sent a message that is too large");
    std::string bytes(header.size, '\0');
    read_all(bytes.data(), bytes.size(), deadline);
    const auto got = static_cast<Message>(header.kind);
    if (got == Message::failure) throw std::runtime_error("stopped, because the other process failed");
    if (got != kind) throw std::runtime_error("the other process sent a message out of order");
    return bytes;
}

void Channel::send_share(const kvmem::Share &share, const Deadline &deadline) {
    send(Message::share, {}, deadline);
    share.send(fd_, deadline.left());
}

kvmem::Share Channel::receive_share(const Deadline &deadline) {
    receive(Message::share, deadline);
    return kvmem::Share::receive(fd_, deadline.left());
}

bool Channel::readable() const {
    pollfd entry = {fd_, POLLIN, 0};
    return poll(&entry, 1, 0) > 0;
}

void Channel::wait_for(short events, const Deadline &deadline) const {
    pollfd entry = {fd_, events, 0};
    while (!deadline.passed()) {
        const int ready = poll(&entry, 1, deadline.left_ms(std::chrono::seconds(1)));
        if (ready > 0) return;
        if (ready < 0 && errno != EINTR) throw_errno("poll");
    }
    throw std::runtime_error("the other process did not reply in time");
}

void Channel::write_all(const void *bytes, std::size_t size, const Deadline &deadline) {
    const char *next = static_cast<const char *>(bytes);
    while (size > 0) {
        wait_for(POLLOUT, deadline);
        const std::size_t sent = moved(::send(fd_, next, size, MSG_NOSIGNAL | MSG_DONTWAIT));
        next += sent;
        size -= sent;
    }
}

void Channel::read_all(void *bytes, std::size_t size, const Deadline &deadline) {
    char *next = static_cast<char *>(bytes);
    while (size > 0) {
        wait_for(POLLIN, deadline);
        const ssize_t result = recv(fd_, next, size, MSG_DONTWAIT);
        if (result == 0) throw_gone();
        const std::size_t received = moved(result);
        next += received;
        size -= received;
    }
}
