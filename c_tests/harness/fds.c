// SPDX-License-Identifier: Apache-2.0
// Sends one byte with descriptors attached, as many as one message carries.
#include "fds.h"

#include "harness.h"

/* The kernel accepts up to 253 per message. */
#define MAX_FDS 200

typedef union control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(MAX_FDS * sizeof(int))];
} control;

static void send_some(int socket, const int *fds, size_t count) {
    char byte = 0;
    struct iovec part = {&byte, 1};
    control control = {.bytes = {0}};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = CMSG_SPACE(count * sizeof(int))};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(header), fds, count * sizeof(int));
    CHECK_EQ(sendmsg(socket, &message, MSG_NOSIGNAL), 1);
}

static void receive_some(int socket, int *fds, size_t count) {
    char byte = 0;
    struct iovec part = {&byte, 1};
    control control;
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    CHECK_EQ(recvmsg(socket, &message, MSG_CMSG_CLOEXEC), 1);
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    CHECK(header != NULL && header->cmsg_type == SCM_RIGHTS);
    CHECK_EQ(header->cmsg_len, CMSG_LEN(count * sizeof(int)));
    memcpy(fds, CMSG_DATA(header), count * sizeof(int));
}

void send_fds(int socket, const int *fds, size_t count) {
    for (size_t done = 0; done < count; done += MAX_FDS)
        send_some(socket, fds + done, count - done < MAX_FDS ? count - done : MAX_FDS);
}

void receive_fds(int socket, int *fds, size_t count) {
    for (size_t done = 0; done < count; done += MAX_FDS)
        receive_some(socket, fds + done, count - done < MAX_FDS ? count - done : MAX_FDS);
}

void socket_pair_open(socket_pair *pair, int type) {
    CHECK_EQ(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, pair->fds), 0);
}

void socket_pair_end(socket_pair *pair, int end) {
    if (pair->fds[end] >= 0) close(pair->fds[end]);
    pair->fds[end] = -1;
}

void socket_pair_close(socket_pair *pair) {
    socket_pair_end(pair, 0);
    socket_pair_end(pair, 1);
}

void send_fd(int socket, int fd) { send_fds(socket, &fd, 1); }

int receive_fd(int socket) {
    int fd = -1;
    receive_fds(socket, &fd, 1);
    return fd;
}

int reopen_fd(int fd, int flags) { return open(TEXT("/proc/self/fd/%d", fd), flags | O_CLOEXEC); }
