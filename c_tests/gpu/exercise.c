// SPDX-License-Identifier: Apache-2.0
// Each call is made through EXPECT or CALL, which check the current context.
#include "exercise.h"

#include "allocated.h"
#include "patience.h"
#include "sides.h"
#include "caller_context.h"

static void query(int device) {
    GET(kvmem_cuda_info, info, kvmem_cuda_get_info);
    GET(kvmem_cuda_device_info, device_info, kvmem_cuda_get_device_info, device);
    EXPECT(KVMEM_STATUS_OUT_OF_RANGE, kvmem_cuda_get_device_info(info.device_count, &device_info, ERR));
}

static void use_device_memory(int device) {
    kvmem_device_options options = OPTIONS(kvmem_device_options, it.device = device, it.size = MIB);
    GET(kvmem_region *, region, kvmem_region_create_device, &options);
    GET(kvmem_region_info, info, kvmem_region_get_info, region);
    GET(kvmem_region *, view, kvmem_region_create_view, region, 4096, 4096);
    CALL(kvmem_region_destroy(region));
    CALL(kvmem_region_destroy(view));
    options.size = UINT64_C(1) << 50;
    EXPECT(KVMEM_STATUS_OUT_OF_MEMORY, kvmem_region_create_device(&options, &region, ERR));
}

static int32_t cancel_at_half(uint64_t done, uint64_t total, void *user_data) {
    (void)user_data;
    return done >= total / 2;
}

static void use_pinned_memory(int device) {
    kvmem_pinned_options options = OPTIONS(kvmem_pinned_options, it.device = device, it.size = MIB,
                                           it.chunk_size = 256 * 1024);
    GET(kvmem_region *, region, kvmem_region_create_pinned, &options);
    CALL(kvmem_region_destroy(region));
    options.progress = cancel_at_half;
    EXPECT(KVMEM_STATUS_CANCELLED, kvmem_region_create_pinned(&options, &region, ERR));
}

static void use_elastic_memory(int device) {
    OWN(kvmem_region, region, kvmem_region_create_elastic,
        REF(OPTIONS(kvmem_elastic_options, it.device = device, it.size = 4 * MIB, it.extent_size = 2 * MIB)));
    EXPECT_OK(kvmem_region_commit(region, 0, 4 * MIB, ERR));
    EXPECT_OK(kvmem_region_decommit(region, 2 * MIB, 2 * MIB, ERR));
    EXPECT(KVMEM_STATUS_OUT_OF_RANGE, kvmem_region_commit(region, 4 * MIB, 1, ERR));
}

static void use_memory_of_the_engine(int device) {
    const uint64_t address = engine_allocate(device, MIB);
    kvmem_adopt_options options = OPTIONS(kvmem_adopt_options, it.address = (void *)(uintptr_t)address,
                                          it.size = MIB);
    GET(kvmem_region *, region, kvmem_region_adopt_device, &options, device);
    CALL(kvmem_region_destroy(region));
    EXPECT(KVMEM_STATUS_INVALID_ARGUMENT, kvmem_region_adopt_device(&options, device + 1, &region, ERR));
    engine_free(device, address);
    options.address = &options;
    EXPECT(KVMEM_STATUS_INVALID_ARGUMENT, kvmem_region_adopt_device(&options, device, &region, ERR));
}

static void build_layouts(int device) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    kvmem_layout *layout = NULL;
    EXPECT_OK(build_on_device(device, &config, &layout));
    CALL(kvmem_layout_destroy(layout));
    EXPECT_OK(build_pinned(device, &config, &layout));
    CALL(kvmem_layout_destroy(layout));
}

static void copy_blocks(int device) {
    const kv_move move = KV_MOVE(3, {6, 0}, {0, 5});
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    OPENED(side, host, PLACE_PINNED, device, &config, NULL, 1);
    OPENED(side, there, PLACE_DEVICE, device, &config, NULL, 2);
    kv_job options = kv_job_of(&move);
    GET(kvmem_transfer *, transfer, kv_prepare, host.model.layout, there.model.layout, &options);
    RUN(transfer);
    EXPECT_OK(kvmem_transfer_poll(transfer, ERR));
    CALL(kvmem_transfer_destroy(transfer));
    side_check_moved(&there, &host, &move);
}

void exercise_memory(int device) {
    query(device);
    use_device_memory(device);
    use_pinned_memory(device);
    use_elastic_memory(device);
    use_memory_of_the_engine(device);
    build_layouts(device);
}

void exercise_device(int device) {
    exercise_memory(device);
    copy_blocks(device);
}

void await_context_release(int device) {
    const uint64_t end = patience_end();
    while (has_primary_context(device)) patience_wait(end, "the library to release the context");
}
