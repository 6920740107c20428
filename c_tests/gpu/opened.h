// SPDX-License-Identifier: Apache-2.0
// Regions over memory of an owner's, by its IPC handle.
#pragma once

#include "harness.h"
#include "owner.h"

/* An allocation of another process, on its first device. */
typedef struct shared_memory {
    peer owner;
    kvmem_ipc_handle handle;
    kvmem_ipc_options options; /* to open all of it here */
} shared_memory;
/* Filled with the value. */
void shared_memory_open(shared_memory *shared, uint64_t size, unsigned char value);
/* Waits for the end of the owner. */
void shared_memory_close(shared_memory *shared);
/* The owner's address `offset` bytes into it. */
void shared_memory_open_at(shared_memory *shared, uint64_t size, uint64_t offset, unsigned char value);

/* Options for `size` bytes from the exported address on, with all that the exporter told. */
kvmem_ipc_options ipc_options(const kvmem_ipc_handle *handle, uint64_t size);
kvmem_region *open_ipc(const kvmem_ipc_options *options);
/* Not opened, with this status and these words. */
void refuse_ipc(const kvmem_ipc_options *options, kvmem_status status, const char *part);
