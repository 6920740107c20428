// SPDX-License-Identifier: Apache-2.0
// One allocation per context, which contains the regions in order.
#include "own_context.h"

#include "caller_context.h"

const char *const context_destroyed = "destroyed with its context";

void reset_device(int device) { CU(cuDevicePrimaryCtxReset_v2(device)); }

void own_context_open(own_context *own, const kvmem_layout_config *config) {
    *own = (own_context){.num_regions = kv_num_regions(config)};
    CHECK(own->num_regions <= NUM(own->regions));
    CU(cuCtxCreate_v2(&own->context, 0, 0));
    CU(cuMemAlloc_v2(&own->address, MIB));
    CU_GET(CUcontext, popped, cuCtxPopCurrent_v2(&popped));
    const uint64_t size = kv_region_size(config);
    for (size_t i = 0; i < own->num_regions; i++)
        own->regions[i] = region_adopt_on_gpu(own->address + i * size, size, note_release);
    own->layout = regions_lay_out(config, own->regions, own->num_regions, NULL);
}

void own_context_destroy(own_context *own) {
    CU(cuCtxDestroy_v2(own->context));
    own->context = NULL;
}

void own_context_close(own_context *own) {
    const int before = releases_count();
    CALL(kvmem_layout_destroy(own->layout));
    for (size_t i = 0; i < own->num_regions; i++) CALL(kvmem_region_destroy(own->regions[i]));
    await_releases(before + (int)own->num_regions);
    if (own->context != NULL) own_context_destroy(own);
}
