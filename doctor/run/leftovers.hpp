// SPDX-License-Identifier: Apache-2.0
// Files that a process leaves behind when it is killed.
#pragma once

#include <sys/types.h>

namespace doctor {

/// Unlinks the files in /dev/shm that the processes of a group have mapped: what UCX creates there has a name
/// until UCX is done with it.
void remove_leftovers(pid_t group);

}  // namespace doctor
