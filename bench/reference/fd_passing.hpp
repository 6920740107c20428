// SPDX-License-Identifier: Apache-2.0
// Sends and receives file descriptors over a Unix socket (SCM_RIGHTS).
#pragma once

#include <cstddef>
#include <vector>

namespace reference {

// Sends all of them, in as many messages as needed. The caller still owns them.
void send_fds(int socket, const std::vector<int> &fds);

// Receives `count` of them, close-on-exec. The caller owns them.
std::vector<int> receive_fds(int socket, size_t count);

void close_all(const std::vector<int> &fds);

} // namespace reference
