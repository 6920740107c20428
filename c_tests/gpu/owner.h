// SPDX-License-Identifier: Apache-2.0
// Another process that owns device memory, and shares it by handle or by descriptor.
#pragma once

#include "harness.h"

/* Each program that starts owners has this line. */
#define OWNER_ROLE USES_ROLE(owner, owner_role)
void owner_role(int socket);

peer owner_start(void);

/* Has it allocate a device region, filled with the value, and export the address `offset` bytes into it. The
 * device is an ordinal of its own. */
kvmem_ipc_handle owner_allocate(const peer *owner, int device, uint64_t size, uint64_t offset,
                                unsigned char value);
/* Has it create memory of `size` bytes, filled with the value, and answers a descriptor of it. */
int owner_create(const peer *owner, int device, uint64_t size, unsigned char value);
/* Checks there that the memory it made last holds the value everywhere. */
void owner_check(const peer *owner, unsigned char value);
/* Has it free all it has made. */
void owner_free(const peer *owner);
