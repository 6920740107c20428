// SPDX-License-Identifier: Apache-2.0
// File descriptors on their way through a Unix socket (SCM_RIGHTS).
#pragma once

#include <cstddef>
#include <vector>

namespace reference {

// All of them, in as many messages as it takes; they stay the sender's.
void send_fds(int socket, const std::vector<int> &fds);

// As many, close-on-exec; they are the caller's.
std::vector<int> receive_fds(int socket, size_t count);

void close_all(const std::vector<int> &fds);

} // namespace reference
