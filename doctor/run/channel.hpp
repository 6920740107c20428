// SPDX-License-Identifier: Apache-2.0
// Messages between processes of the doctor.
#pragma once

#include "../report/value.hpp"

namespace doctor {

/// Writes a message. Exits if the reader is closed, because the process has no other purpose.
void send_message(int fd, const Value &message);

/// Waits for a message. Throws std::runtime_error if the other process has ended.
Value receive_message(int fd);

/// A message as bytes: its size, then its encoding.
std::string framed(const Value &message);

}  // namespace doctor
