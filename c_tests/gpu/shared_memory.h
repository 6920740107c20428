// SPDX-License-Identifier: Apache-2.0
// Regions of another process's memory, opened by an IPC handle.
#pragma once

#include "harness.h"
#include "owner.h"

/* An allocation of another process, on its device 0. */
typedef struct shared_memory {
    peer owner;
    kvmem_ipc_handle handle;
    kvmem_ipc_options options; /* to open all of it in this process */
} shared_memory;
/* Starts the owner, which fills the memory with the value. */
void shared_memory_open(shared_memory *shared, uint64_t size, unsigned char value);
/* Waits for the end of the owner. */
void shared_memory_close(shared_memory *shared);
/* The same; the owner exports the address at the offset. */
void shared_memory_open_at(shared_memory *shared, uint64_t size, uint64_t offset, unsigned char value);

/* Returns options for `size` bytes from the exported address on, with all fields of the handle. */
kvmem_ipc_options ipc_options(const kvmem_ipc_handle *handle, uint64_t size);
kvmem_region *open_ipc(const kvmem_ipc_options *options);
/* Checks that opening fails with this status and message. */
void refuse_ipc(const kvmem_ipc_options *options, kvmem_status status, const char *part);
