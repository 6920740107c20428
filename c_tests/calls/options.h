// SPDX-License-Identifier: Apache-2.0
// Options of memory, good and bad, for regions and for layouts.
#pragma once

#include "fuzz.h"

/* `has_size`: for a region; a layout's options have size 0. */
kvmem_system_options options_system(fuzz *fuzz, bool has_size);
kvmem_disk_options options_disk(fuzz *fuzz, bool has_size);
kvmem_pinned_options options_pinned(fuzz *fuzz, bool has_size);
kvmem_device_options options_device(fuzz *fuzz, bool has_size);
kvmem_elastic_options options_elastic(fuzz *fuzz, bool has_size);
/* A small shape. */
kvmem_layout_config options_config(fuzz *fuzz);
/* At times sets what must be 0. */
void options_spoil(fuzz *fuzz, uint32_t *reserved);
