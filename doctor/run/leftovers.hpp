// SPDX-License-Identifier: Apache-2.0
// Files that remain when a process is killed.
#pragma once

#include <sys/types.h>

namespace doctor {

/// Unlinks the files in /dev/shm that the processes of a group have mapped. UCX creates such files, and unlinks them
/// only at its end.
void remove_leftovers(pid_t group);

}  // namespace doctor
