// SPDX-License-Identifier: Apache-2.0
// Layouts in new memory, for operations whose driver calls are made to fail.
#pragma once

#include "allocated.h"
#include "harness.h"

/* On the first GPU, or else pinned. */
kvmem_status build_layout(bool on_device, const kv_kind *kind, kvmem_layout **layout);
/* Both; what could not be built stays as it is. The device's is of the second kind. */
kvmem_status build_both(const kv_kind *pinned_kind, kvmem_layout **pinned, kvmem_layout **device);
/* Eight blocks of 1 MiB, none of which has memory yet. */
kvmem_status build_elastic_layout(kvmem_layout **layout);
