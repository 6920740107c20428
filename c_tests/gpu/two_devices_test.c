// SPDX-License-Identifier: Apache-2.0
// Two GPUs in one process: distinguished, not mixed in one layout, copies between them. Skipped with one GPU.
#include "filled.h"
#include "gpu_flight.h"
#include "mapped.h"
#include "own_context.h"
#include "caller_context.h"
#include "exercise.h"

CONTEXTS_END

REQUIRES(lacks_two_gpus)

/* Otherwise each copy creates contexts, which is slow. */
#define RETAIN_BOTH                                                                                  \
    RETAIN_DEVICE(0);                                                                                \
    RETAIN_DEVICE(1)

TEST(two_devices_have_different_uuids) {
    CHECK(driver_devices() >= 2);
    GET(kvmem_cuda_device_info, first, kvmem_cuda_get_device_info, 0);
    GET(kvmem_cuda_device_info, second, kvmem_cuda_get_device_info, 1);
    CHECK(memcmp(first.uuid, second.uuid, sizeof(first.uuid)) != 0);
}

static void copy(place from, int from_device, place to, int to_device) {
    for (size_t kinds = 0; kinds < KV_NUM_KINDS * KV_NUM_KINDS; kinds++) {
        const kvmem_layout_config source = side_config(&kv_kinds[kinds / KV_NUM_KINDS]);
        const kvmem_layout_config destination = side_config(&kv_kinds[kinds % KV_NUM_KINDS]);
        OPENED(flight, flight, .from = from, .from_device = from_device, .source = &source, .to = to,
               .to_device = to_device, .destination = &destination);
        flight_create(&flight, it.transfer.method = 0);
        flight_run(&flight);
        CHECK(method_is_cuda(flight_info(&flight).method));
    }
}

TEST(blocks_are_copied_between_two_devices) {
    static const place places[] = {PLACE_DEVICE, PLACE_ADOPTED};
    RETAIN_BOTH;
    for (int from = 0; from < 2; from++) {
        for (size_t i = 0; i < NUM(places) * NUM(places); i++)
            copy(places[i / NUM(places)], from, places[i % NUM(places)], 1 - from);
    }
}

/* Every device can access pinned memory, not only the device of its options. */
TEST(pinned_memory_works_with_both_devices) {
    RETAIN_BOTH;
    for (int from = 0; from < 2; from++) {
        copy(PLACE_PINNED, from, PLACE_DEVICE, 1 - from);
        copy(PLACE_DEVICE, from, PLACE_PINNED, 1 - from);
        copy(PLACE_DEVICE, from, PLACE_ENGINE_PINNED, 1 - from);
        copy(PLACE_SYSTEM, 0, PLACE_DEVICE, from);
    }
}

/* The kernel on one device reads memory of the other, allocated by kvmem or by an engine. */
TEST(a_kernel_reads_memory_of_a_peer) {
    static const place places[] = {PLACE_DEVICE, PLACE_ADOPTED};
    RETAIN_BOTH;
    for (int i = 0; i < 2 * (int)(NUM(places) * NUM(places)); i++) {
        OPENED(flight, flight, .from = places[i / 2 % 2], .from_device = i % 2, .to = places[i / 4],
               .to_device = 1 - i % 2);
        flight_create(&flight, it.transfer.method = KVMEM_METHOD_CUDA_KERNEL);
        flight_run(&flight);
    }
}

/* Elastic memory keeps no context. Copies of the first round measure rates, and those of the second need nothing of the device before
 * they enable its access to the peer. */
TEST(access_to_a_peer_is_kept_by_the_copy_alone) {
    for (int i = 0; i < 4; i++) {
        {
            OPENED(flight, flight, .from = PLACE_DEVICE, .from_device = i % 2, .to = PLACE_ELASTIC, .to_device = 1 - i % 2);
            flight_create(&flight, it.transfer.method = 0);
            flight_run(&flight);
        }
        await_context_release(0);
        await_context_release(1);
    }
}

/* Each mapping of an engine has its own access rights. */
TEST(a_kernel_reads_mappings_of_a_peer_if_access_is_set) {
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    RETAIN_BOTH;
    OPENED(flight, flight, .from = PLACE_SPANNED, .to = PLACE_ADOPTED, .to_device = 1);
    const span *span = &flight.source.span;
    for (size_t mapping = 0; mapping < 2; mapping++) {
        flight_refuse(&flight, KVMEM_STATUS_UNSUPPORTED, "not mapped for device 1",
                      it.transfer.method = KVMEM_METHOD_CUDA_KERNEL);
        CU(cuMemSetAccess(span->address + mapping * span->granule, span->granule, &access, 1));
    }
    flight_create(&flight, it.transfer.method = KVMEM_METHOD_CUDA_KERNEL);
    flight_run(&flight);
}

/* Enabling peer access applies to memory of the primary context only. */
TEST(a_kernel_cannot_read_memory_of_another_context_of_a_peer) {
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    const kv_job options = WITH(kv_job_of(&scattered_move),
                                                it.transfer.method = KVMEM_METHOD_CUDA_KERNEL);
    RETAIN_BOTH;
    OPENED(own_context, own, &config);
    OPENED(side, destination, PLACE_DEVICE, 1, &config, NULL, 22);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "not mapped for device 1", kv_prepare, own.layout,
           destination.model.layout, &options);
    side_check(&destination);
}

/* A stream of the other device belongs to another context. Submitting on it and waiting on it fail. */
TEST(a_stream_of_the_other_device_is_rejected) {
    RETAIN_BOTH;
    for (int device = 0; device < 2; device++) {
        const char *const reason = TEXT("primary context of device %d", device);
        OPENED(stream, stream, 1 - device);
        OPENED(flight, flight, .from = PLACE_PINNED, .from_device = device, .to = PLACE_DEVICE,
               .to_device = device);
        flight_create(&flight, it.transfer.method = 0);
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, reason,
                       kvmem_transfer_submit_on_stream(flight.transfer, NULL, stream.handle, ERR));
        EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_transfer_poll(flight.transfer, ERR));
        side_check(&flight.destination);
        flight_submit(&flight);
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, reason,
                       kvmem_transfer_wait_on_stream(flight.transfer, 0, stream.handle, ERR));
        flight_finish(&flight);
    }
}

TEST(a_layout_on_regions_of_both_devices_is_rejected) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    static const place places[] = {PLACE_DEVICE, PLACE_ADOPTED};
    for (size_t i = 0; i < NUM(places); i++) {
        OPENED(side, first, places[i], 0, &config, NULL, 1);
        OPENED(side, second, places[i], 1, &config, NULL, 2);
        kvmem_region *mixed[] = {first.model.regions[0], first.model.regions[1], second.model.regions[2]};
        REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "region 0 is located on device 0", kvmem_layout_build,
               REF(OPTIONS(kvmem_layout_options, it.config = &config, it.source = KVMEM_LAYOUT_REGIONS,
                           it.regions = mixed, it.count = NUM(mixed))));
        CHECK_HAS(test_last_message(), "region 2 on device 1");
    }
}

/* Checks that adopting fails, and that the message contains both texts. */
static void refuse_adoption(uint64_t address, uint64_t size, int device, const char *first,
                            const char *second) {
    kvmem_adopt_options options = OPTIONS(kvmem_adopt_options, it.address = (void *)(uintptr_t)address,
                                          it.size = size);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, first, kvmem_region_adopt_device, &options, device);
    CHECK_HAS(test_last_message(), second);
}

TEST(adopting_memory_of_the_other_device_fails) {
    for (int device = 0; device < 2; device++) {
        const uint64_t address = engine_allocate(device, MIB);
        refuse_adoption(address, MIB, 1 - device, TEXT("memory of device %d", device),
                        TEXT("not of device %d", 1 - device));
        engine_free(device, address);
    }
}

TEST(adopting_a_range_on_both_devices_fails) {
    OPENED(span, span, 0, 2, 1);
    span_grow(&span, 1);
    refuse_adoption(span.address, 2 * span.granule, 0, "on device 0", "on device 1");
}

TEST(access_to_a_mapping_is_set_for_the_other_device_if_supported) {
    kvmem_vmm_options options = OPTIONS(kvmem_vmm_options, it.size = 2 * MIB);
    uint32_t access = KVMEM_ACCESS_READ;
    const bool can = gpu_can_access(1, 0);
    GET(kvmem_vmm_memory *, memory, kvmem_vmm_memory_create, &options);
    MAPPED(it, memory, 0, options.size, KVMEM_ACCESS_READ_WRITE);
    EXPECT(can ? KVMEM_STATUS_OK : KVMEM_STATUS_UNSUPPORTED,
           kvmem_vmm_mapping_set_access(it.mapping, 1, KVMEM_ACCESS_READ_WRITE, ERR));
    EXPECT_OK(kvmem_vmm_mapping_get_access(it.mapping, 1, &access, ERR));
    CHECK_EQ(access, can ? KVMEM_ACCESS_READ_WRITE : KVMEM_ACCESS_NONE);
    if (can) {
        fill_device(1, it.address, options.size, 0x21);
        check_device(0, it.address, options.size, 0x21);
    }
}

TEST(using_one_device_creates_no_context_on_the_other) {
    for (int device = 0; device < 2; device++) {
        exercise_device(device);
        CHECK(!has_primary_context(1 - device));
        await_context_release(device);
    }
}
