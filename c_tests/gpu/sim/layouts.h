// SPDX-License-Identifier: Apache-2.0
// Layouts in new memory, for operations whose driver calls fail on demand.
#pragma once

#include "allocated.h"
#include "harness.h"

/* On device 0 if on_device, otherwise in pinned memory. */
kvmem_status build_layout(bool on_device, const kv_kind *kind, kvmem_layout **layout);
/* Builds both; the one on the device is of the second kind. After a failure, the other pointers are
   unchanged. */
kvmem_status build_both(const kv_kind *pinned_kind, kvmem_layout **pinned, kvmem_layout **device);
/* Eight blocks of 1 MiB, without memory. */
kvmem_status build_elastic_layout(kvmem_layout **layout);
