// SPDX-License-Identifier: Apache-2.0
// Elastic memory of a GPU to hand over: so many layers, each with an extent and a control block of its own,
// that the file descriptors and the bytes of its share go in several messages.
#pragma once

#include "harness.h"
#include "wire.h"

#define EXTENTS_LAYERS 254
#define EXTENTS_FDS (2 * EXTENTS_LAYERS)
#define EXTENTS_MESSAGES 3

/* A layout, filled, and its share. */
typedef struct extents {
    kvmem_layout *layout;
    kvmem_share *share;
} extents;

/* Lets this process, and those that it starts, have as many files open as this takes. */
void extents_allow_files(void);
void extents_make(extents *extents);
void extents_give_up(extents *extents);
/* Importers of its first and last layer, which must be as many. */
uint64_t extents_importers(const extents *extents);
/* Nothing but the share keeps an extent: destroys it, and takes that back. */
void extents_check_free(extents *extents);

/* In another process: opens the share and looks at every layer. */
kvmem_layout *extents_open(const kvmem_share *share);
/* Whether the process that shared it is there, as its first region tells. With the error slot. */
kvmem_status extents_check_owner(const kvmem_layout *layout);
