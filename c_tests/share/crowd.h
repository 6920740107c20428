// SPDX-License-Identifier: Apache-2.0
// Many processes that have one region open at once.
#ifndef KVMEM_TEST_SHARE_CROWD_H
#define KVMEM_TEST_SHARE_CROWD_H

#include "parcel.h"

/* A program that starts a crowd has this among its roles. */
#define CROWD_ROLE {"crowd", crowd_role}
void crowd_role(int socket);

/* A process with so many children, each of which has opened the region, read its first bytes, those of this
   seed, and waits. None of them outlives it. */
peer crowd_start(const parcel *parcel, uint32_t count, uint32_t seed);
/* Ends them, every other one as a crash would. */
void crowd_end(peer *crowd);

#endif
