// SPDX-License-Identifier: Apache-2.0
// A share in transit between two processes: bytes and file descriptors that the test can change.
#pragma once

#include "harness.h"

typedef struct parcel {
    message bytes;
    int *fds; /* owned */
    size_t num_fds;
} parcel;

/* Copies both. */
parcel parcel_of(const kvmem_share *share);
parcel parcel_copy(const parcel *parcel);
void parcel_close(parcel *parcel);

void parcel_send(int socket, const parcel *parcel);
parcel parcel_receive(int socket);

/* kvmem_share_read. Sets the error slot. */
kvmem_status parcel_read(const parcel *parcel, kvmem_share **share);
/* The same, which must succeed. */
kvmem_share *parcel_share(const parcel *parcel);
