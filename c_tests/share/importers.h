// SPDX-License-Identifier: Apache-2.0
// Many processes that have one region open at the same time.
#pragma once

#include "parcel.h"

/* Each program that starts importers has this line. */
#define IMPORTERS_ROLE USES_ROLE(importers, importers_role)
void importers_role(int socket);

/* A process with this number of children. Each child has opened the region, read its first bytes and compared
   them with the seed, and waits. No child outlives the process. */
peer importers_start(const parcel *parcel, uint32_t count, uint32_t seed);
/* Ends them; every other one is killed. */
void importers_end(peer *importers);
