// SPDX-License-Identifier: Apache-2.0
// Regions over memory of an owner's, by its IPC handle.
#pragma once

#include "harness.h"

/* Options for `size` bytes from the exported address on, with all that the exporter told. */
kvmem_ipc_options ipc_options(const kvmem_ipc_handle *handle, uint64_t size);
kvmem_region *open_ipc(const kvmem_ipc_options *options);
/* Not opened, with this status and these words. */
void refuse_ipc(const kvmem_ipc_options *options, kvmem_status status, const char *part);
