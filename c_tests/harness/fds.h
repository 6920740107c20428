// SPDX-License-Identifier: Apache-2.0
// Sends file descriptors to a peer.
#pragma once

#include <stddef.h>

/* Two connected Unix sockets of a type, SOCK_*, until the end of the scope: `OPENED(socket_pair, ends,
   SOCK_STREAM);`. An end that is -1 is closed. */
typedef struct socket_pair {
    int fds[2];
} socket_pair;
void socket_pair_open(socket_pair *pair, int type);
void socket_pair_close(socket_pair *pair);
/* Closes one end, 0 or 1. */
void socket_pair_end(socket_pair *pair, int end);

/* Opens the file of a descriptor again, close-on-exec. Returns -1 if the kernel does not allow it. */
int reopen_fd(int fd, int flags);

void send_fd(int socket, int fd);
/* Close-on-exec, like all received ones. */
int receive_fd(int socket);

/* Any number of descriptors. The receiver must know the number. */
void send_fds(int socket, const int *fds, size_t count);
void receive_fds(int socket, int *fds, size_t count);
