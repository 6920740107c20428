// SPDX-License-Identifier: Apache-2.0
#include "channel.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace doctor {

namespace {

constexpr std::uint64_t max_bytes = 16 << 20;

void receive_bytes(int fd, char *bytes, std::size_t size) {
    while (size > 0) {
        const ssize_t received = read(fd, bytes, size);
        if (received < 0 && errno == EINTR) continue;
        if (received <= 0) throw std::runtime_error("the other process has ended");
        bytes += received;
        size -= static_cast<std::size_t>(received);
    }
}

}  // namespace

std::string framed(const Value &message) {
    const std::string body = message.encode();
    const std::uint64_t size = body.size();
    std::string bytes(sizeof size, '\0');
    std::memcpy(bytes.data(), &size, sizeof size);
    return bytes + body;
}

void send_message(int fd, const Value &message) {
    const std::string bytes = framed(message);
    for (std::string_view rest = bytes; !rest.empty();) {
        const ssize_t written = write(fd, rest.data(), rest.size());
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) _exit(1);
        rest.remove_prefix(static_cast<std::size_t>(written));
    }
}

Value receive_message(int fd) {
    std::uint64_t size = 0;
    receive_bytes(fd, reinterpret_cast<char *>(&size), sizeof size);
    if (size > max_bytes) throw std::runtime_error("the other process sent a damaged message");
    std::string body(size, '\0');
    receive_bytes(fd, body.data(), body.size());
    auto message = Value::decode(body);
    if (!message) throw std::runtime_error("the other process sent a damaged message");
    return *std::move(message);
}

}  // namespace doctor
