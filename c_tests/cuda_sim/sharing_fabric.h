// SPDX-License-Identifier: Apache-2.0
// Fabric handles: 64 bytes that name memory of another process, and keep nothing.
#pragma once

#include "state.h"

/* Whether the driver gives them. An H200 alone in its machine promises them, and does not. */
bool fabric_is_permitted(void);
/* What was told of it is forgotten. */
void fabric_reset(void);

CUresult fabric_export(const memory *exported, void *handle);
/* A file on the memory that a handle names. */
CUresult fabric_open(const void *handle, int *fd);
