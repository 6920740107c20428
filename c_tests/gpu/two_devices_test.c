// SPDX-License-Identifier: Apache-2.0
// Two GPUs in one process: told apart, never mixed in one layout, copied between. Fails where there is one.
#include "filled.h"
#include "mapped.h"
#include "sides.h"
#include "stance.h"
#include "work.h"

REQUIRES(lacks_two_gpus)

static const kvmem_block_pair scattered[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}, {4, 4}, {2, 1}};
static const kv_move all_layers = {scattered, NUM(scattered), 0, 0, 3};

TEST(there_are_two_and_they_differ) {
    kvmem_cuda_device_info infos[2];
    CHECK(driver_devices() >= 2);
    EXPECT_OK(kvmem_cuda_get_device_info(0, &infos[0], ERR));
    EXPECT_OK(kvmem_cuda_get_device_info(1, &infos[1], ERR));
    CHECK(memcmp(infos[0].uuid, infos[1].uuid, sizeof(infos[0].uuid)) != 0);
}

static void copy(place from, int from_device, place to, int to_device) {
    for (size_t kinds = 0; kinds < KV_NUM_KINDS * KV_NUM_KINDS; kinds++) {
        const kvmem_layout_config source_config = side_config(&kv_kinds[kinds / KV_NUM_KINDS]);
        const kvmem_layout_config destination_config = side_config(&kv_kinds[kinds % KV_NUM_KINDS]);
        OPENED(side, source, from, from_device, &source_config, NULL, 11);
        OPENED(side, destination, to, to_device, &destination_config, NULL, 22);
        const kvmem_transfer_info info = side_move(&source, &destination, &all_layers);
        CHECK(path_is_cuda(info.path));
    }
}

/* Or each copy would make contexts of its own, which takes the longest. */
static void retain_both(void) {
    retain_device(0);
    retain_device(1);
}

static void release_both(void) {
    release_device(0);
    release_device(1);
}

TEST(blocks_go_from_one_to_the_other) {
    static const place places[] = {PLACE_DEVICE, PLACE_ADOPTED};
    retain_both();
    for (int from = 0; from < 2; from++) {
        for (size_t i = 0; i < NUM(places) * NUM(places); i++) {
            copy(places[i / NUM(places)], from, places[i % NUM(places)], 1 - from);
        }
    }
    release_both();
}

/* Pinned memory serves every device, whichever it was made for. */
TEST(pinned_memory_serves_both) {
    retain_both();
    for (int from = 0; from < 2; from++) {
        copy(PLACE_PINNED, from, PLACE_DEVICE, 1 - from);
        copy(PLACE_DEVICE, from, PLACE_PINNED, 1 - from);
        copy(PLACE_DEVICE, from, PLACE_ENGINE_PINNED, 1 - from);
        copy(PLACE_SYSTEM, 0, PLACE_DEVICE, from);
    }
    release_both();
}

/* The kernel of one reads memory of the other: the library's, or an engine's tensors. */
TEST(a_kernel_pulls_from_the_other) {
    static const place places[] = {PLACE_DEVICE, PLACE_ADOPTED};
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    retain_both();
    for (int turn = 0; turn < 2 * (int)(NUM(places) * NUM(places)); turn++) {
        const int from = turn % 2;
        OPENED(side, source, places[turn / 2 % 2], from, &config, NULL, 11);
        OPENED(side, destination, places[turn / 4], 1 - from, &config, NULL, 22);
        kvmem_transfer_options options = kv_transfer_options(&all_layers);
        options.path = KVMEM_PATH_CUDA_KERNEL;
        GET(kvmem_transfer *, transfer, kvmem_transfer_create, source.model.layout, destination.model.layout,
            &options);
        RUN(transfer);
        CALL(kvmem_transfer_destroy(transfer));
        side_check_moved(&destination, &source, &all_layers);
    }
    release_both();
}

static void expect_no_kernel(const kvmem_layout *source, const kvmem_layout *destination,
                             const char *reason) {
    kvmem_transfer_options options = WITH(kv_transfer_options(&all_layers), it.path = KVMEM_PATH_CUDA_KERNEL);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, reason, kvmem_transfer_create, source, destination, &options);
}

/* What an engine has mapped says itself who reaches it, mapping by mapping. */
TEST(mappings_of_an_engine_are_pulled_where_they_may_be) {
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    retain_both();
    side source;
    side destination;
    side_open(&source, PLACE_SPANNED, 0, &config, NULL, 11);
    side_open(&destination, PLACE_ADOPTED, 1, &config, NULL, 22);
    const span *span = &source.span;
    const char *const reason = "not mapped for device 1";
    expect_no_kernel(source.model.layout, destination.model.layout, reason);
    CU(cuMemSetAccess(span->address, span->granule, &access, 1));
    expect_no_kernel(source.model.layout, destination.model.layout, reason);
    CU(cuMemSetAccess(span->address + span->granule, span->granule, &access, 1));
    kv_run_by(source.model.layout, destination.model.layout, &all_layers, KVMEM_PATH_CUDA_KERNEL);
    side_check_moved(&destination, &source, &all_layers);
    side_close(&source);
    side_close(&destination);
    release_both();
}

/* Enabling peers opens the primary context's memory alone. */
TEST(memory_of_another_context_is_not_pulled) {
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    CUcontext other = NULL;
    CUcontext popped = NULL;
    CUdeviceptr address = 0;
    retain_both();
    CU(cuCtxCreate_v2(&other, 0, 0));
    CU(cuMemAlloc_v2(&address, MIB));
    CU(cuCtxPopCurrent_v2(&popped));
    kvmem_region *regions[KV_MAX_REGIONS] = {NULL};
    const uint64_t count = kv_num_regions(&config);
    for (uint64_t i = 0; i < count; i++) {
        kvmem_adopt_options adopt;
        kvmem_adopt_options_init(&adopt, sizeof(adopt));
        adopt.address = (void *)(uintptr_t)(address + i * kv_region_size(&config));
        adopt.size = kv_region_size(&config);
        EXPECT_OK(kvmem_region_adopt_device(&adopt, 0, &regions[i], ERR));
    }
    kvmem_layout *layout = regions_lay_out(&config, regions, count, NULL);
    side destination;
    side_open(&destination, PLACE_DEVICE, 1, &config, NULL, 22);
    expect_no_kernel(layout, destination.model.layout, "not mapped for device 1");
    side_check(&destination);
    side_close(&destination);
    CALL(kvmem_layout_destroy(layout));
    for (uint64_t i = 0; i < count; i++) {
        CALL(kvmem_region_destroy(regions[i]));
    }
    CU(cuCtxDestroy_v2(other));
    release_both();
}

/* A stream of the other device has another context: nothing is put there, and nothing waits there. */
TEST(a_stream_of_the_other_is_refused) {
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    retain_both();
    for (int device = 0; device < 2; device++) {
        const char *const reason =
            device == 0 ? "primary context of device 0" : "primary context of device 1";
        CUstream stream = NULL;
        OPENED(side, source, PLACE_PINNED, device, &config, NULL, 11);
        OPENED(side, destination, PLACE_DEVICE, device, &config, NULL, 22);
        CU_ON(1 - device, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        const kvmem_transfer_options options = kv_transfer_options(&all_layers);
        GET(kvmem_transfer *, transfer, kvmem_transfer_create, source.model.layout, destination.model.layout,
            &options);
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, reason,
                       kvmem_transfer_submit_on_stream(transfer, stream, ERR));
        EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_transfer_poll(transfer, ERR));
        side_check(&destination);
        EXPECT_OK(kvmem_transfer_submit(transfer, ERR));
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, reason,
                       kvmem_transfer_wait_on_stream(transfer, 0, stream, ERR));
        EXPECT_OK(kvmem_transfer_wait(transfer, PATIENCE, ERR));
        CALL(kvmem_transfer_destroy(transfer));
        side_check_moved(&destination, &source, &all_layers);
        CU_ON(1 - device, cuStreamDestroy_v2(stream));
    }
    release_both();
}

TEST(regions_of_both_make_no_layout) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    static const place places[] = {PLACE_DEVICE, PLACE_ADOPTED};
    for (size_t i = 0; i < NUM(places); i++) {
        OPENED(side, first, places[i], 0, &config, NULL, 1);
        OPENED(side, second, places[i], 1, &config, NULL, 2);
        kvmem_region *mixed[] = {first.model.regions[0], first.model.regions[1], second.model.regions[2]};
        kvmem_layout_options options = OPTIONS(kvmem_layout_options, it.config = &config,
                                               it.source = KVMEM_LAYOUT_REGIONS, it.regions = mixed,
                                               it.count = NUM(mixed));
        REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "region 0 is located on device 0", kvmem_layout_build, &options);
        CHECK_HAS(test_last_message(), "region 2 on device 1");
    }
}

/* Refused, naming what it is and what it should be. */
static void refuse_adoption(uint64_t address, uint64_t size, int device, const char *first,
                            const char *second) {
    kvmem_adopt_options options = OPTIONS(kvmem_adopt_options, it.address = (void *)(uintptr_t)address,
                                          it.size = size);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, first, kvmem_region_adopt_device, &options, device);
    CHECK_HAS(test_last_message(), second);
}

TEST(memory_of_the_other_is_not_adopted) {
    for (int device = 0; device < 2; device++) {
        const uint64_t address = engine_allocate(device, MIB);
        refuse_adoption(address, MIB, 1 - device, device == 0 ? "memory of device 0" : "memory of device 1",
                        device == 0 ? "not of device 1" : "not of device 0");
        engine_free(device, address);
    }
}

TEST(a_range_over_both_is_not_adopted) {
    OPENED(span, span, 0, 2, 1);
    span_grow(&span, 1);
    refuse_adoption(span.address, 2 * span.granule, 0, "on device 0", "on device 1");
}

/* What one may do with mapped memory of the other is for the program to say, where the hardware can. */
TEST(mapped_memory_is_allowed_to_the_other) {
    kvmem_vmm_options options = OPTIONS(kvmem_vmm_options, it.size = 2 * MIB);
    uint32_t access = KVMEM_ACCESS_READ;
    GET(bool, can, kvmem_cuda_can_access, 1, 0);
    GET(kvmem_vmm_memory *, memory, kvmem_vmm_memory_create, &options);
    const mapped it = map_memory(memory, 0, options.size, KVMEM_ACCESS_READ_WRITE);
    EXPECT(can ? KVMEM_STATUS_OK : KVMEM_STATUS_UNSUPPORTED,
           kvmem_vmm_mapping_set_access(it.mapping, 1, KVMEM_ACCESS_READ_WRITE, ERR));
    EXPECT_OK(kvmem_vmm_mapping_get_access(it.mapping, 1, &access, ERR));
    CHECK_EQ(access, can ? KVMEM_ACCESS_READ_WRITE : KVMEM_ACCESS_NONE);
    if (can) {
        fill_device(1, it.address, options.size, 0x21);
        check_device(0, it.address, options.size, 0x21);
    }
    CALL(unmap_memory(&it));
}

TEST(work_on_one_makes_no_context_on_the_other) {
    for (int device = 0; device < 2; device++) {
        work_on(device);
        CHECK(!has_primary_context(1 - device));
        await_no_context(device);
    }
}
