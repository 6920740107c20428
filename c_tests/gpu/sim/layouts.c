// SPDX-License-Identifier: Apache-2.0
// The layouts that operations build. Failures set the error slot.
#include "layouts.h"

kvmem_status build_layout(bool on_device, const kv_kind *kind, kvmem_layout **layout) {
    const kvmem_layout_config config = kv_config(kind);
    return on_device ? build_on_device(0, &config, layout) : build_pinned(0, &config, layout);
}

kvmem_status build_both(const kv_kind *pinned_kind, kvmem_layout **pinned, kvmem_layout **device) {
    const kvmem_status status = build_layout(false, pinned_kind, pinned);
    return status == KVMEM_STATUS_OK ? build_layout(true, &kv_kinds[1], device) : status;
}

kvmem_status build_elastic_layout(kvmem_layout **layout) {
    kvmem_layout_config config = WITH(kv_config(&kv_kinds[0]), it.num_blocks = 8, it.num_layers = 2);
    config.alignment = UINT64_C(1) << 20; /* most of each block is padding, which is not filled */
    kvmem_elastic_options elastic = OPTIONS(kvmem_elastic_options);
    kvmem_layout_options options = OPTIONS(kvmem_layout_options, it.config = &config,
                                           it.source = KVMEM_LAYOUT_ALLOCATE, it.elastic = &elastic);
    return kvmem_layout_build(&options, layout, ERR);
}
