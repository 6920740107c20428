// SPDX-License-Identifier: Apache-2.0
// Two GPUs in one process: told apart, never mixed in one layout, copied between. Fails where there is one.
#include "filled.h"
#include "gpu_flight.h"
#include "mapped.h"
#include "own_context.h"
#include "stance.h"
#include "work.h"

REQUIRES(lacks_two_gpus)

/* Or each copy would make contexts of its own, which takes the longest. */
#define RETAIN_BOTH                                                                                  \
    RETAIN_DEVICE(0);                                                                                \
    RETAIN_DEVICE(1)

TEST(there_are_two_and_they_differ) {
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
        flight_create(&flight, it.path = 0);
        flight_run(&flight);
        CHECK(path_is_cuda(flight_info(&flight).path));
    }
}

TEST(blocks_go_from_one_to_the_other) {
    static const place places[] = {PLACE_DEVICE, PLACE_ADOPTED};
    RETAIN_BOTH;
    for (int from = 0; from < 2; from++) {
        for (size_t i = 0; i < NUM(places) * NUM(places); i++)
            copy(places[i / NUM(places)], from, places[i % NUM(places)], 1 - from);
    }
}

/* Pinned memory serves every device, whichever it was made for. */
TEST(pinned_memory_serves_both) {
    RETAIN_BOTH;
    for (int from = 0; from < 2; from++) {
        copy(PLACE_PINNED, from, PLACE_DEVICE, 1 - from);
        copy(PLACE_DEVICE, from, PLACE_PINNED, 1 - from);
        copy(PLACE_DEVICE, from, PLACE_ENGINE_PINNED, 1 - from);
        copy(PLACE_SYSTEM, 0, PLACE_DEVICE, from);
    }
}

/* The kernel of one reads memory of the other: the library's, or an engine's tensors. */
TEST(a_kernel_pulls_from_the_other) {
    static const place places[] = {PLACE_DEVICE, PLACE_ADOPTED};
    RETAIN_BOTH;
    for (int turn = 0; turn < 2 * (int)(NUM(places) * NUM(places)); turn++) {
        OPENED(flight, flight, .from = places[turn / 2 % 2], .from_device = turn % 2, .to = places[turn / 4],
               .to_device = 1 - turn % 2);
        flight_create(&flight, it.path = KVMEM_PATH_CUDA_KERNEL);
        flight_run(&flight);
    }
}

/* What an engine has mapped says itself who reaches it, mapping by mapping. */
TEST(mappings_of_an_engine_are_pulled_where_they_may_be) {
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    RETAIN_BOTH;
    OPENED(flight, flight, .from = PLACE_SPANNED, .to = PLACE_ADOPTED, .to_device = 1);
    const span *span = &flight.source.span;
    for (size_t mapping = 0; mapping < 2; mapping++) {
        flight_refuse(&flight, KVMEM_STATUS_UNSUPPORTED, "not mapped for device 1",
                      it.path = KVMEM_PATH_CUDA_KERNEL);
        CU(cuMemSetAccess(span->address + mapping * span->granule, span->granule, &access, 1));
    }
    flight_create(&flight, it.path = KVMEM_PATH_CUDA_KERNEL);
    flight_run(&flight);
}

/* Enabling peers opens the primary context's memory alone. */
TEST(memory_of_another_context_is_not_pulled) {
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    const kvmem_transfer_options options = WITH(kv_transfer_options(&scattered_move),
                                                it.path = KVMEM_PATH_CUDA_KERNEL);
    RETAIN_BOTH;
    OPENED(own_context, own, &config);
    OPENED(side, destination, PLACE_DEVICE, 1, &config, NULL, 22);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "not mapped for device 1", kvmem_transfer_create, own.layout,
           destination.model.layout, &options);
    side_check(&destination);
}

/* A stream of the other device has another context: nothing is put there, and nothing waits there. */
TEST(a_stream_of_the_other_is_refused) {
    RETAIN_BOTH;
    for (int device = 0; device < 2; device++) {
        const char *const reason = TEXT("primary context of device %d", device);
        OPENED(stream, stream, 1 - device);
        OPENED(flight, flight, .from = PLACE_PINNED, .from_device = device, .to = PLACE_DEVICE,
               .to_device = device);
        flight_create(&flight, it.path = 0);
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, reason,
                       kvmem_transfer_submit_on_stream(flight.transfer, stream.handle, ERR));
        EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_transfer_poll(flight.transfer, ERR));
        side_check(&flight.destination);
        flight_submit(&flight);
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, reason,
                       kvmem_transfer_wait_on_stream(flight.transfer, 0, stream.handle, ERR));
        flight_land(&flight);
    }
}

TEST(regions_of_both_make_no_layout) {
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
        refuse_adoption(address, MIB, 1 - device, TEXT("memory of device %d", device),
                        TEXT("not of device %d", 1 - device));
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

TEST(work_on_one_makes_no_context_on_the_other) {
    for (int device = 0; device < 2; device++) {
        work_on(device);
        CHECK(!has_primary_context(1 - device));
        await_no_context(device);
    }
}
