// SPDX-License-Identifier: Apache-2.0
// File descriptors on their way to a peer.
#pragma once

#include <stddef.h>

void send_fd(int socket, int fd);
/* Close-on-exec, as with the following. */
int receive_fd(int socket);

/* Any number of them; the receiver must know how many come. */
void send_fds(int socket, const int *fds, size_t count);
void receive_fds(int socket, int *fds, size_t count);
