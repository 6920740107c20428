// SPDX-License-Identifier: Apache-2.0
// A file descriptor on its way to a peer.
#ifndef CUDA_SIM_FD_SOCKET_H
#define CUDA_SIM_FD_SOCKET_H

void send_fd(int socket, int fd);
int receive_fd(int socket);

#endif
