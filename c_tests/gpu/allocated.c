// SPDX-License-Identifier: Apache-2.0
// One allocation for all that a layout needs.
#include "allocated.h"

kvmem_status build_on_device(int device, const kvmem_layout_config *config, kvmem_layout **layout) {
    kvmem_device_options memory = OPTIONS(kvmem_device_options, it.device = device);
    kvmem_layout_options options = OPTIONS(kvmem_layout_options, it.config = config,
                                           it.source = KVMEM_LAYOUT_ALLOCATE, it.device = &memory);
    return kvmem_layout_build(&options, layout, ERR);
}

kvmem_status build_pinned(int device, const kvmem_layout_config *config, kvmem_layout **layout) {
    kvmem_pinned_options memory = OPTIONS(kvmem_pinned_options, it.device = device);
    kvmem_layout_options options = OPTIONS(kvmem_layout_options, it.config = config,
                                           it.source = KVMEM_LAYOUT_ALLOCATE, it.pinned = &memory);
    return kvmem_layout_build(&options, layout, ERR);
}
