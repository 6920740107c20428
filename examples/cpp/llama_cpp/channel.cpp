// SPDX-License-Identifier: Apache-2.0
// Each message is its size and its bytes.
#include "channel.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>

namespace {

[[noreturn]] void throw_lost() { throw std::runtime_error("the other process is gone"); }

void write_all(int fd, const void *data, std::size_t size) {
    const char *bytes = static_cast<const char *>(data);
    while (size > 0) {
        const ssize_t sent = ::send(fd, bytes, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) throw_lost();
        bytes += sent;
        size -= static_cast<std::size_t>(sent);
    }
}

}  // namespace

Channel::~Channel() { close(fd_); }

void Channel::send(std::string_view bytes) {
    const std::uint64_t size = bytes.size();
    write_all(fd_, &size, sizeof size);
    write_all(fd_, bytes.data(), bytes.size());
}

std::string Channel::receive() {
    std::uint64_t size;
    read_all(&size, sizeof size);
    std::string bytes(size, '\0');
    read_all(bytes.data(), bytes.size());
    return bytes;
}

void Channel::read_all(void *data, std::size_t size) {
    char *bytes = static_cast<char *>(data);
    while (size > 0) {
        const ssize_t received = recv(fd_, bytes, size, 0);
        if (received < 0 && errno == EINTR) continue;
        if (received <= 0) throw_lost();
        bytes += received;
        size -= static_cast<std::size_t>(received);
    }
}
