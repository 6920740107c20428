// SPDX-License-Identifier: Apache-2.0
// Many processes that have one region open at once.
#pragma once

#include "parcel.h"

/* Each program that starts a crowd has this line. */
#define CROWD_ROLE USES_ROLE(crowd, crowd_role)
void crowd_role(int socket);

/* A process with so many children, each of which has opened the region, read its first bytes, those of this
   seed, and waits. None of them outlives it. */
peer crowd_start(const parcel *parcel, uint32_t count, uint32_t seed);
/* Ends them, every other one as a crash would. */
void crowd_end(peer *crowd);
