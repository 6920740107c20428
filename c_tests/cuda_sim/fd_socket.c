// SPDX-License-Identifier: Apache-2.0
// Sends one byte with a descriptor beside it.
#include "fd_socket.h"

#include "harness.h"

#include <string.h>
#include <sys/socket.h>

typedef union control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
} control;

void send_fd(int socket, int fd) {
    char byte = 0;
    struct iovec part = {&byte, 1};
    control control = {.bytes = {0}};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(fd));
    memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    CHECK_EQ(sendmsg(socket, &message, MSG_NOSIGNAL), 1);
}

int receive_fd(int socket) {
    char byte = 0;
    struct iovec part = {&byte, 1};
    control control;
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    CHECK_EQ(recvmsg(socket, &message, MSG_CMSG_CLOEXEC), 1);
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    CHECK(header != NULL && header->cmsg_type == SCM_RIGHTS);
    int fd = -1;
    memcpy(&fd, CMSG_DATA(header), sizeof(fd));
    return fd;
}
