// SPDX-License-Identifier: Apache-2.0
// Layouts in new memory of their own.
#pragma once

#include "harness.h"

/* Each answers what the library does, in the error slot, so that what is made to fail can be built so too. */
kvmem_status build_on_device(int device, const kvmem_layout_config *config, kvmem_layout **layout);
/* Page-locked in the context of that GPU. */
kvmem_status build_pinned(int device, const kvmem_layout_config *config, kvmem_layout **layout);
