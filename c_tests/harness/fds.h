// SPDX-License-Identifier: Apache-2.0
// File descriptors on their way to a peer.
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

/* Opens the file of a descriptor anew, close-on-exec. -1: the kernel refuses. */
int reopen_fd(int fd, int flags);

void send_fd(int socket, int fd);
/* Close-on-exec, as with the following. */
int receive_fd(int socket);

/* Any number of them; the receiver must know how many come. */
void send_fds(int socket, const int *fds, size_t count);
void receive_fds(int socket, int *fds, size_t count);
