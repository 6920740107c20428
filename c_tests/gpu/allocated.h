// SPDX-License-Identifier: Apache-2.0
// Layouts in memory that kvmem allocates for them.
#pragma once

#include "harness.h"

/* Both return the status of kvmem_layout_build and set the error slot, because some callers expect a
   failure. */
kvmem_status build_on_device(int device, const kvmem_layout_config *config, kvmem_layout **layout);
/* In host memory that is page-locked in the context of that GPU. */
kvmem_status build_pinned(int device, const kvmem_layout_config *config, kvmem_layout **layout);
