// SPDX-License-Identifier: Apache-2.0
// Legacy IPC handles: regions of another process's memory, reference-counted, checked, closed once.
#include "engine.h"
#include "filled.h"
#include "shared_memory.h"
#include "owner.h"
#include "caller_context.h"

#include <pthread.h>

OWNER_ROLE

/* Large enough that no driver places two of them in one allocation. */
#define SIZE (4 * MIB)

TEST(an_opened_region_is_read_and_written) {
    CLEANUP(peer_finish) peer owner = owner_start();
    for (int device = 0; device < driver_devices(); device++) {
        const kvmem_ipc_handle handle = owner_allocate(&owner, device, SIZE, 0, 0x21);
        const kvmem_ipc_options options = ipc_options(&handle, SIZE);
        OWNED(kvmem_region) region = open_ipc(&options);
        const kvmem_region_info info = region_info(region);
        CHECK_EQ(info.size, SIZE);
        CHECK_EQ(info.tier, KVMEM_TIER_DEVICE);
        CHECK_EQ(info.origin, KVMEM_ORIGIN_IMPORTED);
        CHECK_EQ(info.device, device);
        CHECK_EQ(info.fd, -1);
        check_device(device, info.address, SIZE, 0x21);
        fill_device(device, info.address, SIZE, 0x42);
        owner_check(&owner, 0x42);
    }
}

TEST(an_exported_address_can_be_inside_an_allocation) {
    CLEANUP(peer_finish) peer owner = owner_start();
    const kvmem_ipc_handle whole = owner_allocate(&owner, 0, SIZE, 0, 1);
    const kvmem_ipc_handle part = owner_allocate(&owner, 0, SIZE, 12345, 2);
    CHECK_EQ(whole.offset, 0);
    CHECK(whole.base_size >= SIZE);
    CHECK_EQ(part.offset, 12345);
    CHECK(memcmp(whole.handle, part.handle, sizeof(part.handle)) != 0);
    CHECK(whole.buffer_id != part.buffer_id);
    const kvmem_ipc_options options = ipc_options(&part, SIZE - 12345);
    OWNED(kvmem_region) region = open_ipc(&options);
    check_device(0, region_info(region).address, SIZE - 12345, 2);
}

TEST(all_openings_share_one_mapping) {
    OPENED(shared_memory, shared, SIZE, 3);
    kvmem_region *first = open_ipc(&shared.options);
    shared.options.offset = 4096;
    shared.options.size = 100;
    kvmem_region *second = open_ipc(&shared.options);
    OWN(kvmem_region, view, kvmem_region_create_view, second, 10, 20);
    CHECK_EQ(region_info(second).address, region_info(first).address + 4096);
    CALL(kvmem_region_destroy(first));
    CALL(kvmem_region_destroy(second));
    CHECK_EQ(region_info(view).origin, KVMEM_ORIGIN_VIEW);
    check_device(0, region_info(view).address, 20, 3);
}

TEST(a_range_past_the_end_is_rejected) {
    OPENED(shared_memory, shared, SIZE, 4);
    const struct {
        uint64_t offset, size;
    } wrong[] = {{shared.handle.base_size, 1}, {1, shared.handle.base_size}, {0, shared.handle.base_size + 1},
                 {UINT64_MAX, 1},              {1, UINT64_MAX},              {UINT64_MAX, UINT64_MAX}};
    for (size_t i = 0; i < NUM(wrong); i++) {
        shared.options.offset = wrong[i].offset;
        shared.options.size = wrong[i].size;
        refuse_ipc(&shared.options, KVMEM_STATUS_OUT_OF_RANGE, "exceed the");
    }
    shared.options.size = 0;
    refuse_ipc(&shared.options, KVMEM_STATUS_INVALID_ARGUMENT, "0 bytes");
    shared.options.offset = 0;
    shared.options.size = shared.handle.base_size;
    CALL(kvmem_region_destroy(open_ipc(&shared.options)));
}

TEST(size_and_buffer_id_of_the_exporter_are_compared) {
    OPENED(shared_memory, shared, SIZE, 5);
    shared.options.base_size++;
    refuse_ipc(&shared.options, KVMEM_STATUS_STALE, "its exporter reported");
    shared.options.base_size = 0;
    kvmem_region *region = open_ipc(&shared.options);
    shared.options.buffer_id++;
    refuse_ipc(&shared.options, KVMEM_STATUS_STALE, "is open here as buffer");
    shared.options.buffer_id = 0;
    kvmem_region *unchecked = open_ipc(&shared.options);
    CALL(kvmem_region_destroy(region));
    CALL(kvmem_region_destroy(unchecked));
    shared.options.buffer_id = shared.handle.buffer_id + 1; /* not compared, because nothing is open */
    CALL(kvmem_region_destroy(open_ipc(&shared.options)));
}

TEST(a_handle_of_the_same_process_is_rejected) {
    ENGINE_MEMORY(address, 0, SIZE);
    GET(kvmem_ipc_handle, handle, kvmem_ipc_export, address + 7);
    CHECK_EQ(handle.base + handle.offset, address + 7);
    const kvmem_ipc_options options = ipc_options(&handle, 1);
    refuse_ipc(&options, KVMEM_STATUS_INVALID_ARGUMENT, "exported the handle itself");
}

TEST(invalid_handles_are_rejected) {
    kvmem_ipc_options options = OPTIONS(kvmem_ipc_options, it.size = 1);
    static const unsigned char values[] = {0, 0x33, 0xFF};
    for (size_t i = 0; i < NUM(values); i++) {
        memset(options.handle, values[i], sizeof(options.handle));
        refuse_ipc(&options, KVMEM_STATUS_INVALID_ARGUMENT, "identifies no memory");
    }
}

TEST(a_missing_device_is_rejected) {
    OPENED(shared_memory, shared, SIZE, 6);
    EACH_MISSING_DEVICE(missing) {
        shared.options.device = *missing;
        refuse_ipc(&shared.options, KVMEM_STATUS_OUT_OF_RANGE, "there is no device");
    }
}

TEST(freed_memory_is_rejected) {
    OPENED(shared_memory, shared, SIZE, 7);
    owner_free(&shared.owner);
    refuse_ipc(&shared.options, KVMEM_STATUS_INVALID_ARGUMENT, "was freed");
}

TEST(opened_memory_outlives_a_killed_owner) {
    peer owner = owner_start();
    const kvmem_ipc_handle opened = owner_allocate(&owner, 0, SIZE, 0, 8);
    const kvmem_ipc_handle not_opened = owner_allocate(&owner, 0, SIZE, 0, 9);
    const kvmem_ipc_options options = ipc_options(&opened, SIZE);
    OWNED(kvmem_region) region = open_ipc(&options);
    peer_kill(&owner);
    check_device(0, region_info(region).address, SIZE, 8);
    const kvmem_ipc_options late = ipc_options(&not_opened, SIZE);
    refuse_ipc(&late, KVMEM_STATUS_INVALID_ARGUMENT, "has ended");
}

static void refuse_export(uint64_t address, kvmem_status status, const char *part) {
    kvmem_ipc_handle handle;
    memset(&handle, 0xEE, sizeof(handle));
    EXPECT_MESSAGE(status, part, kvmem_ipc_export(address, &handle, ERR));
    CHECK_FILLED(&handle, 0xEE, sizeof(handle));
}

TEST(exporting_other_memory_fails) {
    int host = 0;
    span span;
    span_open(&span, 0, 1, 1);
    refuse_export(span.address, KVMEM_STATUS_UNSUPPORTED, "as a file descriptor");
    const uint64_t unmapped = span.address;
    span_close(&span);
    refuse_export(unmapped, KVMEM_STATUS_INVALID_ARGUMENT, "not device memory");
    refuse_export(0, KVMEM_STATUS_INVALID_ARGUMENT, "not device memory");
    refuse_export((uint64_t)(uintptr_t)&host, KVMEM_STATUS_INVALID_ARGUMENT, "not device memory");
    void *pinned = engine_allocate_host(0, 4096);
    refuse_export((uint64_t)(uintptr_t)pinned, KVMEM_STATUS_INVALID_ARGUMENT, "host memory");
    engine_free_host(0, pinned);
}

TEST(exporting_memory_of_another_process_fails) {
    OPENED(shared_memory, shared, SIZE, 10);
    OWNED(kvmem_region) region = open_ipc(&shared.options);
    refuse_export(region_info(region).address, KVMEM_STATUS_UNSUPPORTED,
                  "memory of another process in that process");
}

TEST(blocks_are_moved_to_opened_memory) {
    const kv_move all = KV_MOVE(3, {0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}, {6, 6});
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    const uint64_t size = kv_region_size(&config);
    CLEANUP(peer_finish) peer owner = owner_start();
    const kvmem_ipc_handle handle = owner_allocate(&owner, 0, SIZE, 256, 11);
    const kvmem_ipc_options options = ipc_options(&handle, size);
    kvmem_region *region = open_ipc(&options);
    const uint64_t address = region_info(region).address;
    OWNED(kvmem_layout) there = regions_lay_out(&config, &region, 1, NULL);
    CALL(kvmem_region_destroy(region)); /* the layout keeps it alive */
    OPENED(kv_side, here, &config, NULL, 12);
    kv_run(here.layout, there, &all);
    CLEANUP(test_free) unsigned char *bytes = test_allocate(size);
    read_device(0, bytes, address, size);
    CHECK_BYTES(bytes, here.memory + here.starts[0], size);
}

static void *open_and_close(void *argument) {
    const kvmem_ipc_options *options = argument;
    for (int i = 0; i < 200; i++) {
        /* not OWNED: threads have no caller context */
        CLEANUP(test_end_kvmem_region) kvmem_region *region = NULL;
        CHECK_EQ(kvmem_region_open_ipc(options, &region, NULL), KVMEM_STATUS_OK);
    }
    return NULL;
}

TEST(threads_open_and_close_concurrently) {
    OPENED(shared_memory, shared, SIZE, 13);
    threads_run(4, open_and_close, &shared.options, 0);
    OWNED(kvmem_region) region = open_ipc(&shared.options);
    check_device(0, region_info(region).address, SIZE, 13);
}

TEST(every_device_is_found_by_its_uuid) {
    for (int device = 0; device < driver_devices(); device++) {
        GET(kvmem_cuda_device_info, info, kvmem_cuda_get_device_info, device);
        GET(int32_t, found, kvmem_cuda_find_device, info.uuid);
        CHECK_EQ(found, device);
    }
    static const uint8_t unknown[16] = {0xAB, 0xCD};
    int32_t found = 77;
    EXPECT_MESSAGE(KVMEM_STATUS_NOT_FOUND, "UUID abcd0000-0000-0000-0000-000000000000",
                   kvmem_cuda_find_device(unknown, &found, ERR));
    CHECK_EQ(found, 77);
}
