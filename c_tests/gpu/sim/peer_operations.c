// SPDX-License-Identifier: Apache-2.0
// Transfers from one GPU to another. Both primary contexts are retained, as in an engine with two GPUs.
#include "operations.h"

#include "driver.h"
#include "engine.h"
#include "layouts.h"
#include "moves.h"

#define SIZE (UINT64_C(1) << 20)

static uint64_t engine;        /* memory of device 0 */
/* on it; never a destination, because it would keep the state of copies alive */
static kvmem_layout *adopted;
static kvmem_region *regions[KV_MAX_REGIONS];

void operations_open(void) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    retain_device(0);
    retain_device(1);
    moves_open();
    engine = engine_allocate(0, SIZE);
    const size_t count = kv_num_regions(&config);
    for (size_t i = 0; i < count; i++) {
        kvmem_adopt_options adopt = OPTIONS(kvmem_adopt_options, it.size = kv_region_size(&config),
                                            it.address = (void *)(uintptr_t)(engine + i * it.size));
        EXPECT_OK(kvmem_region_adopt_device(&adopt, 0, &regions[i], ERR));
    }
    adopted = regions_lay_out(&config, regions, count, NULL);
}

void operations_close(void) {
    kvmem_layout_destroy(adopted);
    for (size_t i = 0; i < KV_MAX_REGIONS; i++) {
        DESTROYED(kvmem_region, regions[i]);
    }
    engine_free(0, engine);
    moves_close();
    release_device(0);
    release_device(1);
}

static kvmem_status build_on(int device, const kv_kind *kind, kvmem_layout **layout) {
    const kvmem_layout_config config = kv_config(kind);
    return build_on_device(device, &config, layout);
}

/* From one device to the other, which executes the copies. */
static kvmem_status pull(int from, uint32_t method, start start) {
    OWNED(kvmem_layout) source = NULL;
    OWNED(kvmem_layout) destination = NULL;
    kvmem_status status = build_on(from, &kv_kinds[2], &source);
    THEN(status, build_on(1 - from, &kv_kinds[1], &destination));
    THEN(status, move_by(source, destination, method, start));
    return status;
}

OPERATION_CALL(pull_by_kernel, pull(0, KVMEM_METHOD_CUDA_KERNEL, WITHOUT_STREAM))
OPERATION_CALL(pull_one_by_one, pull(0, KVMEM_METHOD_CUDA_COPY, WITHOUT_STREAM))
OPERATION_CALL(pull_in_rows, pull(0, KVMEM_METHOD_CUDA_2D, WITHOUT_STREAM))

/* The stream is one of device 0. */
OPERATION_CALL(pull_on_a_stream, pull(1, KVMEM_METHOD_CUDA_KERNEL, ON_A_STREAM))

OPERATION(pull_memory_of_the_engine) {
    OWNED(kvmem_layout) destination = NULL;
    kvmem_status status = build_on(1, &kv_kinds[2], &destination);
    THEN(status, move_by(adopted, destination, KVMEM_METHOD_CUDA_KERNEL, WITHOUT_STREAM));
    return status;
}
