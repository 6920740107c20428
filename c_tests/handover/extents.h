// SPDX-License-Identifier: Apache-2.0
// Elastic GPU memory to share. It has one extent and one control block per layer, so many that the file
// descriptors and bytes of its share need several messages.
#pragma once

#include "harness.h"
#include "wire.h"

#define EXTENTS_LAYERS 254
#define EXTENTS_FDS (2 * EXTENTS_LAYERS)
#define EXTENTS_MESSAGES 3

/* A filled layout, and its share. */
typedef struct extents {
    kvmem_layout *layout;
    kvmem_share *share;
} extents;

/* Raises the limit of open files of this process, and of those that it starts. */
void extents_allow_files(void);
void extents_open(extents *extents);
void extents_close(extents *extents);
/* Number of importers of the first and of the last layer, which must be equal. */
uint64_t extents_importers(const extents *extents);
/* Destroys the share, and checks that nothing else holds an extent. */
void extents_check_free(extents *extents);

/* In another process: opens the share and checks every layer. */
kvmem_layout *extents_import(const kvmem_share *share);
/* Checks by the first region whether the exporting process exists. Sets the error slot. */
kvmem_status extents_check_owner(const kvmem_layout *layout);
