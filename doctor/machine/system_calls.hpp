// SPDX-License-Identifier: Apache-2.0
// System calls that kvmem uses, and that a filter may forbid or an old kernel lack.
#pragma once

#include <cstddef>
#include <vector>

namespace doctor {

struct SystemCall {
    const char *name;
    /// The behaviour of kvmem without it.
    const char *without;
    /// Makes a harmless call. Returns 0, or the errno of the failure.
    int (*probe)();
};

const std::vector<SystemCall> &probed_system_calls();

/// Returns 0 if an io_uring can be created, or the errno of the failure.
int probe_io_uring();

/// Reads bytes of the parent process, which has them at the same address. Returns 0, or the errno of the failure.
int read_of_parent(const char *bytes, std::size_t size);

}  // namespace doctor
