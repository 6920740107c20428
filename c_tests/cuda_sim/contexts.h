// SPDX-License-Identifier: Apache-2.0
// Contexts: which one is current on this thread, and the end of one with all that it holds.
#pragma once

#include "state.h"

/* The top of the calling thread's stack; NULL when it is empty. */
context *context_current(void);
size_t context_depth(void);

/* A context of this device, alive. */
context *context_create(CUdevice device);
/* Destroys it with its memory, streams and events. Handles and mappings belong to no context. */
void context_destroy(context *ended);

/* The context of this address; crashes on one that never was. */
context *context_find(CUcontext wanted);
/* Puts a context on the stack of the calling thread, or takes the top away. */
void context_push(context *pushed);
void context_pop(void);
