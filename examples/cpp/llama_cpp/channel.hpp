// SPDX-License-Identifier: Apache-2.0
// The socket between the prefill and the decode process: what an engine's control plane carries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

class Channel {
public:
    explicit Channel(int fd) : fd_(fd) {}
    ~Channel();
    Channel(const Channel &) = delete;
    Channel &operator=(const Channel &) = delete;

    // A message is bytes. Both throw if the peer is gone.
    void send(std::string_view bytes);
    std::string receive();

    template <typename T>
    void send_list(const std::vector<T> &list) {
        send({reinterpret_cast<const char *>(list.data()), list.size() * sizeof(T)});
    }
    template <typename T>
    std::vector<T> receive_list() {
        const std::string bytes = receive();
        const T *first = reinterpret_cast<const T *>(bytes.data());
        return {first, first + bytes.size() / sizeof(T)};
    }

    int fd() const { return fd_; }

private:
    void read_all(void *data, std::size_t size);

    int fd_;
};
