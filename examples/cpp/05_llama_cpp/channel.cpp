// SPDX-License-Identifier: Apache-2.0
// Each message is its size and its bytes.
#include "channel.hpp"

#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>

namespace {

[[noreturn]] void throw_lost(ssize_t result) {
    const bool is_late = result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    throw std::runtime_error(is_late ? "the other process does not respond" : "the other process is gone");
}

void limit(int fd, int option) {
    timeval time{};
    time.tv_sec = std::chrono::seconds(Channel::patience).count();
    if (setsockopt(fd, SOL_SOCKET, option, &time, sizeof time) != 0) {
        throw std::system_error(errno, std::generic_category(), "setsockopt");
    }
}

void write_all(int fd, const void *data, std::size_t size) {
    const char *bytes = static_cast<const char *>(data);
    while (size > 0) {
        const ssize_t sent = ::send(fd, bytes, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) throw_lost(sent);
        bytes += sent;
        size -= static_cast<std::size_t>(sent);
    }
}

}  // namespace

Channel::Channel(int fd) : fd_(fd) {
    limit(fd, SO_RCVTIMEO);
    limit(fd, SO_SNDTIMEO);
}

Channel::~Channel() { close(fd_); }

void Channel::send(std::string_view bytes) {
    const std::uint64_t size = bytes.size();
    write_all(fd_, &size, sizeof size);
    write_all(fd_, bytes.data(), bytes.size());
}

std::string Channel::receive() {
    std::string bytes(receive_size(), '\0');
    receive_bytes(bytes.data(), bytes.size());
    return bytes;
}

std::size_t Channel::receive_size() {
    std::uint64_t size;
    receive_bytes(&size, sizeof size);
    return size;
}

void Channel::receive_bytes(void *data, std::size_t size) {
    char *bytes = static_cast<char *>(data);
    while (size > 0) {
        const ssize_t received = recv(fd_, bytes, size, 0);
        if (received < 0 && errno == EINTR) continue;
        if (received <= 0) throw_lost(received);
        bytes += received;
        size -= static_cast<std::size_t>(received);
    }
}

void Channel::receive_end() {
    char byte;
    ssize_t received;
    do {
        received = recv(fd_, &byte, 1, 0);
    } while (received < 0 && errno == EINTR);
    if (received > 0) throw std::runtime_error("the other process sent an unexpected message");
    if (received < 0 && errno != ECONNRESET) throw_lost(received);
}
