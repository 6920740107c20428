// SPDX-License-Identifier: Apache-2.0
// The socket between the prefill and the decode process. An engine has its own control plane for this.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

class Channel {
public:
    // The timeout for a message of the peer, which may first have to evaluate the largest prompt.
    static constexpr std::chrono::minutes patience{5};

    explicit Channel(int fd);
    ~Channel();
    Channel(const Channel &) = delete;
    Channel &operator=(const Channel &) = delete;

    // A message is bytes. Both throw if the peer is gone, or does not respond in time.
    void send(std::string_view bytes);
    std::string receive();

    template <typename T>
    void send_list(const std::vector<T> &list) {
        send({reinterpret_cast<const char *>(list.data()), list.size() * sizeof(T)});
    }
    template <typename T>
    std::vector<T> receive_list() {
        const std::string bytes = receive();
        std::vector<T> list(bytes.size() / sizeof(T));
        if (!list.empty()) std::memcpy(list.data(), bytes.data(), list.size() * sizeof(T));
        return list;
    }
    // The same in two steps, into memory of the caller.
    std::size_t receive_size();
    void receive_bytes(void *data, std::size_t size);

    // Waits until the peer has closed its end.
    void receive_end();

    int fd() const { return fd_; }

private:
    int fd_;
};
