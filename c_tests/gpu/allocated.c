// SPDX-License-Identifier: Apache-2.0
// One allocation for all that a layout needs.
#include "allocated.h"

kvmem_status build_on_device(int device, const kvmem_layout_config *config, kvmem_layout **layout) {
    kvmem_device_options memory;
    kvmem_device_options_init(&memory, sizeof(memory));
    memory.device = device;
    kvmem_layout_options options;
    kvmem_layout_options_init(&options, sizeof(options));
    options.config = config;
    options.source = KVMEM_LAYOUT_ALLOCATE;
    options.device = &memory;
    return kvmem_layout_build(&options, layout, ERR);
}

kvmem_status build_pinned(int device, const kvmem_layout_config *config, kvmem_layout **layout) {
    kvmem_pinned_options memory;
    kvmem_pinned_options_init(&memory, sizeof(memory));
    memory.device = device;
    kvmem_layout_options options;
    kvmem_layout_options_init(&options, sizeof(options));
    options.config = config;
    options.source = KVMEM_LAYOUT_ALLOCATE;
    options.pinned = &memory;
    return kvmem_layout_build(&options, layout, ERR);
}
