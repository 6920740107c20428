// SPDX-License-Identifier: Apache-2.0
// Starts the peer. A message is its length, then that many bytes.
#include "common/peer.hpp"

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <spawn.h>
#include <stdexcept>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

extern char **environ;

namespace bench {
namespace {

constexpr int peer_fd = 3; // the peer's end of the channel

[[noreturn]] void fail(int code, const char *what)
{
    throw std::system_error(code, std::generic_category(), what);
}

} // namespace

channel::~channel()
{
    if (fd_ >= 0)
        close(fd_);
}

void channel::send(const void *data, size_t size)
{
    const uint64_t length = size;
    const char *parts[] = {reinterpret_cast<const char *>(&length), static_cast<const char *>(data)};
    const size_t sizes[] = {sizeof length, size};
    for (int part = 0; part < 2; ++part) {
        for (size_t sent = 0; sent < sizes[part];) {
            const ssize_t written = ::send(fd_, parts[part] + sent, sizes[part] - sent, MSG_NOSIGNAL);
            if (written < 0 && errno != EINTR)
                fail(errno, "send to the peer");
            sent += written > 0 ? static_cast<size_t>(written) : 0;
        }
    }
}

void channel::set_timeout(int seconds)
{
    const timeval most = {seconds, 0};
    if (setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most) != 0)
        fail(errno, "set the receive timeout");
    timeout_ns_ = static_cast<uint64_t>(seconds) * 1'000'000'000;
}

void channel::send_share(const kv::share &given)
{
    kv::call(kvmem_share_send, given.get(), fd_, timeout_ns_);
}

kv::share channel::receive_share() { return kv::make<kv::share>(kvmem_share_receive, fd_, timeout_ns_); }

bool channel::read_exactly(void *data, size_t size)
{
    for (size_t done = 0; done < size;) {
        const ssize_t got = read(fd_, static_cast<char *>(data) + done, size - done);
        if (got == 0)
            return false;
        if (got < 0 && errno == ECONNRESET)
            return false;
        if (got < 0 && errno != EINTR)
            fail(errno, "read from the peer");
        done += got > 0 ? static_cast<size_t>(got) : 0;
    }
    return true;
}

std::optional<std::vector<unsigned char>> channel::receive_or_end()
{
    uint64_t length = 0;
    if (!read_exactly(&length, sizeof length))
        return std::nullopt;
    std::vector<unsigned char> message(length);
    if (!read_exactly(message.data(), length))
        return std::nullopt;
    return message;
}

std::vector<unsigned char> channel::receive()
{
    std::optional<std::vector<unsigned char>> message = receive_or_end();
    if (!message)
        throw std::runtime_error("the peer process has ended");
    return std::move(*message);
}

peer::peer(const std::vector<std::string> &arguments)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        fail(errno, "socketpair");
    link_.emplace(ends[0]);
    channel theirs(ends[1]);

    std::vector<std::string> words = {"/proc/self/exe", "--peer"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char *> argv;
    for (std::string &word : words)
        argv.push_back(word.data());
    argv.push_back(nullptr);

    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], peer_fd);
    const int code = posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (code != 0)
        fail(code, "start the peer");
}

peer::~peer()
{
    link_.reset();
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        std::fprintf(stderr, "the peer process ended with status %#x\n", static_cast<unsigned>(status));
}

void use_only_tcp()
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    setenv("UCX_TLS", driver != nullptr ? "tcp,cuda_copy" : "tcp", 1);
    if (driver != nullptr)
        dlclose(driver);
}

channel parent_channel() { return channel(peer_fd); }

} // namespace bench
