// SPDX-License-Identifier: Apache-2.0
// A message has one byte of data and up to 253 file descriptors, the kernel's maximum.
#include "reference/fd_passing.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>

namespace reference {
namespace {

constexpr size_t max_at_once = 253;

struct message {
    char byte = 0;
    iovec data{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * max_at_once)] = {};
    msghdr header{};

    explicit message(size_t fds)
    {
        header.msg_iov = &data;
        header.msg_iovlen = 1;
        header.msg_control = control;
        header.msg_controllen = CMSG_SPACE(sizeof(int) * fds);
    }
};

[[noreturn]] void fail(const char *what) { throw std::system_error(errno, std::generic_category(), what); }

void send_some(int socket, const int *fds, size_t count)
{
    message sent(count);
    cmsghdr *rights = CMSG_FIRSTHDR(&sent.header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int) * count);
    std::memcpy(CMSG_DATA(rights), fds, sizeof(int) * count);
    if (sendmsg(socket, &sent.header, MSG_NOSIGNAL) != 1)
        fail("send file descriptors");
}

void receive_some(int socket, std::vector<int> &fds)
{
    message received(max_at_once);
    const ssize_t got = recvmsg(socket, &received.header, MSG_CMSG_CLOEXEC);
    if (got < 0)
        fail("receive file descriptors");
    const cmsghdr *rights = CMSG_FIRSTHDR(&received.header);
    if (got == 0 || rights == nullptr || rights->cmsg_type != SCM_RIGHTS)
        throw std::runtime_error("the message has no file descriptors");
    const size_t count = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    fds.resize(fds.size() + count);
    std::memcpy(fds.data() + fds.size() - count, CMSG_DATA(rights), sizeof(int) * count);
}

} // namespace

void send_fds(int socket, const std::vector<int> &fds)
{
    for (size_t sent = 0; sent < fds.size(); sent += max_at_once)
        send_some(socket, fds.data() + sent, std::min(max_at_once, fds.size() - sent));
}

std::vector<int> receive_fds(int socket, size_t count)
{
    std::vector<int> fds;
    while (fds.size() < count)
        receive_some(socket, fds);
    return fds;
}

void close_all(const std::vector<int> &fds)
{
    for (int fd : fds)
        close(fd);
}

} // namespace reference
