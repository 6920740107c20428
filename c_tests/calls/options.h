// SPDX-License-Identifier: Apache-2.0
// Options of memory, valid and invalid, for regions and layouts.
#pragma once

#include "fuzz.h"

/* `has_size`: for a region; options of a layout have size 0. */
kvmem_system_options options_system(fuzz *fuzz, bool has_size);
kvmem_disk_options options_disk(fuzz *fuzz, bool has_size);
kvmem_object_options options_object(fuzz *fuzz);
kvmem_block_options options_block(fuzz *fuzz);
kvmem_pinned_options options_pinned(fuzz *fuzz, bool has_size);
kvmem_device_options options_device(fuzz *fuzz, bool has_size);
kvmem_elastic_options options_elastic(fuzz *fuzz, bool has_size);
/* A small shape. */
kvmem_layout_config options_config(fuzz *fuzz);
/* Sometimes sets a reserved field. */
void options_spoil(fuzz *fuzz, uint32_t *reserved);
