// SPDX-License-Identifier: Apache-2.0
// A process that owns device memory, and shares it by IPC handle or by file descriptor.
#pragma once

#include "harness.h"

/* Needed in each program that starts owners. */
#define OWNER_ROLE USES_ROLE(owner, owner_role)
void owner_role(int socket);

peer owner_start(void);

/* The owner allocates a device region, fills it with the value, and exports the address at the offset. The
 * device is the ordinal in the owner's process. */
kvmem_ipc_handle owner_allocate(const peer *owner, int device, uint64_t size, uint64_t offset,
                                unsigned char value);
/* The owner creates VMM memory and fills it with the value. Returns a file descriptor of it. */
int owner_create(const peer *owner, int device, uint64_t size, unsigned char value);
/* The owner checks that every byte of its latest memory has the value. */
void owner_check(const peer *owner, unsigned char value);
/* The owner frees all of its memory. */
void owner_free(const peer *owner);
