// SPDX-License-Identifier: Apache-2.0
// Contexts: the current context of a thread, and the destruction of a context with its objects.
#pragma once

#include "state.h"

/* Returns the top of the calling thread's stack; NULL if it is empty. */
context *context_current(void);
size_t context_depth(void);

/* Creates a context of a device. */
context *context_create(CUdevice device);
/* Destroys it with its memory, streams and events. Handles and mappings belong to no context. */
void context_destroy(context *ended);

/* Returns the context at this address, alive or destroyed; ends the process if there never was one. */
context *context_find(CUcontext handle);
/* Push to and pop from the stack of the calling thread. */
void context_push(context *pushed);
void context_pop(void);
