// SPDX-License-Identifier: Apache-2.0
// What a share is between two processes: bytes and file descriptors, in the test's own hands.
#pragma once

#include "harness.h"

typedef struct parcel {
    message bytes;
    int *fds; /* its own */
    size_t num_fds;
} parcel;

/* Copies of both. */
parcel parcel_of(const kvmem_share *share);
parcel parcel_copy(const parcel *parcel);
void parcel_close(parcel *parcel);

void parcel_send(int socket, const parcel *parcel);
parcel parcel_receive(int socket);

/* What kvmem makes of it. With the error slot. */
kvmem_status parcel_read(const parcel *parcel, kvmem_share **share);
/* The same, which must succeed. */
kvmem_share *parcel_share(const parcel *parcel);
