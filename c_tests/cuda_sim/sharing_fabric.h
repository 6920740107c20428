// SPDX-License-Identifier: Apache-2.0
// Fabric handles: 64 bytes that identify memory of another process, and do not keep it alive.
#pragma once

#include "state.h"

/* Returns whether fabric handles work. On a single H200 the attribute is set, but fabric handles do not
   work. */
bool fabric_is_permitted(void);
/* Restores the setting of the environment. */
void fabric_reset(void);

CUresult fabric_export(const memory *exported, void *handle);
/* Opens the file of the memory that a handle identifies. */
CUresult fabric_open(const void *handle, int *fd);
