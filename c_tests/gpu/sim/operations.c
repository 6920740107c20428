// SPDX-License-Identifier: Apache-2.0
// The operations except transfers. The caller checks the status that they return.
#include "operations.h"

#include "driver.h"
#include "engine.h"
#include "layouts.h"
#include "owner.h"

#define SIZE (UINT64_C(1) << 20)

static uint64_t allocation;
static span mappings;
static peer owner; /* of the shared memory */
static kvmem_ipc_handle shared;
static int shared_fd;

void operations_open(void) {
    owner = owner_start();
    shared = owner_allocate(&owner, 1, SIZE, 0, 1);
    shared_fd = owner_create(&owner, 0, 2 * SIZE, 2);
    allocation = engine_allocate(0, SIZE);
    span_open(&mappings, 0, 3, 3);
}

void operations_close(void) {
    span_close(&mappings);
    engine_free(0, allocation);
    close(shared_fd);
    peer_finish(&owner);
}

OPERATION(get_device_info) {
    kvmem_cuda_device_info info;
    return kvmem_cuda_get_device_info(1, &info, ERR);
}

static kvmem_status create_device(int device, uint64_t size) {
    kvmem_device_options options = OPTIONS(kvmem_device_options, it.device = device, it.size = size);
    return TRIED(kvmem_region, kvmem_region_create_device, &options);
}

OPERATION_CALL(allocate_device_memory, create_device(1, SIZE))
REFUSED_OPERATION_CALL(allocate_too_much_device_memory, KVMEM_STATUS_OUT_OF_MEMORY,
                       create_device(0, UINT64_C(1) << 50))

static kvmem_status adopt(uint64_t address, uint64_t size) {
    kvmem_adopt_options options = OPTIONS(kvmem_adopt_options, it.address = (void *)(uintptr_t)address,
                                          it.size = size);
    return TRIED(kvmem_region, kvmem_region_adopt_device, &options, 0);
}

OPERATION_CALL(adopt_an_allocation, adopt(allocation + 16, SIZE - 16))
OPERATION_CALL(adopt_mappings, adopt(mappings.address, 3 * mappings.granule))
REFUSED_OPERATION_CALL(adopt_past_the_end, KVMEM_STATUS_OUT_OF_RANGE,
                       adopt(mappings.address, 3 * mappings.granule + 1))

OPERATION(find_a_device) {
    int32_t device = 0;
    return kvmem_cuda_find_device(shared.uuid, &device, ERR);
}

OPERATION(export_a_handle) {
    kvmem_ipc_handle handle;
    return kvmem_ipc_export(allocation + 16, &handle, ERR);
}

static kvmem_status open_ipc(uint64_t size, uint64_t base_size) {
    kvmem_ipc_options options = OPTIONS(kvmem_ipc_options);
    memcpy(options.handle, shared.handle, sizeof(options.handle));
    options.device = 1;
    options.size = size;
    options.base_size = base_size;
    return TRIED(kvmem_region, kvmem_region_open_ipc, &options);
}

OPERATION_CALL(open_memory_of_another_process, open_ipc(SIZE, SIZE))

/* For device 0, a peer of the device that owns the memory. */
OPERATION(open_for_another_device) {
    kvmem_ipc_options options = OPTIONS(kvmem_ipc_options);
    memcpy(options.handle, shared.handle, sizeof(options.handle));
    options.flags = KVMEM_IPC_FOR_DEVICE;
    options.device = 1;
    options.for_device = 0;
    options.size = SIZE;
    return TRIED(kvmem_region, kvmem_region_open_ipc, &options);
}

REFUSED_OPERATION_CALL(open_past_the_end, KVMEM_STATUS_OUT_OF_RANGE, open_ipc(SIZE + 1, 0))

/* Maps memory, which the caller destroys. */
static kvmem_status map(kvmem_vmm_memory *memory, uint64_t size) {
    OWNED(kvmem_vmm_range) range = NULL;
    OWNED(kvmem_vmm_mapping) mapping = NULL;
    kvmem_status status = kvmem_vmm_range_create(size, 0, NULL, &range, ERR);
    THEN(status, kvmem_vmm_mapping_create(range, 0, memory, NULL, &mapping, ERR));
    THEN(status, kvmem_vmm_mapping_set_access(mapping, 0, KVMEM_ACCESS_READ_WRITE, ERR));
    uint32_t access = 0;
    THEN(status, kvmem_vmm_mapping_get_access(mapping, 0, &access, ERR));
    return status;
}

static kvmem_status import_memory(int32_t device) {
    OWNED(kvmem_vmm_memory) memory = NULL;
    kvmem_status status = kvmem_vmm_memory_import_fd(shared_fd, 2 * SIZE, device, &memory, ERR);
    THEN(status, map(memory, 2 * SIZE));
    return status;
}

OPERATION_CALL(import_and_map, import_memory(0))
REFUSED_OPERATION_CALL(import_of_the_wrong_device, KVMEM_STATUS_INVALID_ARGUMENT, import_memory(1))

OPERATION(retain_and_map) {
    OWNED(kvmem_vmm_memory) memory = NULL;
    kvmem_status status = kvmem_vmm_memory_retain(mappings.address + 1, &memory, ERR);
    THEN(status, map(memory, mappings.granule));
    return status;
}

static int32_t cancel_at_half(uint64_t done, uint64_t total, void *user_data) {
    (void)user_data;
    return done >= total / 2;
}

static kvmem_status create_pinned(kvmem_progress_callback progress) {
    kvmem_pinned_options options = OPTIONS(kvmem_pinned_options, it.size = 4 * SIZE, it.chunk_size = SIZE,
                                           it.progress = progress);
    return TRIED(kvmem_region, kvmem_region_create_pinned, &options);
}

OPERATION_CALL(allocate_pinned_memory, create_pinned(NULL))
REFUSED_OPERATION_CALL(cancel_pinned_memory, KVMEM_STATUS_CANCELLED, create_pinned(cancel_at_half))

static kvmem_status allocate_a_layout(bool on_device) {
    OWNED(kvmem_layout) layout = NULL;
    return build_layout(on_device, &kv_kinds[1], &layout);
}

OPERATION_CALL(allocate_a_layout_on_a_device, allocate_a_layout(true))
OPERATION_CALL(allocate_a_layout_in_pinned_memory, allocate_a_layout(false))

#define EXTENT (UINT64_C(2) << 20)

static kvmem_region_info elastic_info(const kvmem_region *region) {
    kvmem_region_info info = {0};
    kvmem_region_get_info(region, &info, NULL);
    return info;
}

/* Checks that a failed call had no effect. */
static void check_unchanged(const kvmem_region *region, const kvmem_region_info *before) {
    const kvmem_region_info after = elastic_info(region);
    CHECK_EQ(after.num_committed, before->num_committed);
    CHECK_EQ(after.generation, before->generation);
}

static kvmem_status grow(kvmem_region *region, uint64_t first, uint64_t count) {
    const kvmem_region_info before = elastic_info(region);
    const kvmem_status status = kvmem_region_commit(region, first * EXTENT, count * EXTENT, ERR);
    if (status != KVMEM_STATUS_OK) {
        check_unchanged(region, &before);
    }
    return status;
}

static kvmem_status use_elastic(kvmem_region *region) {
    kvmem_status status = grow(region, 1, 1);
    THEN(status, grow(region, 0, 4));
    THEN(status, kvmem_region_decommit(region, 2 * EXTENT, EXTENT, ERR));
    return status;
}

OPERATION(commit_elastic_memory) {
    kvmem_elastic_options options = OPTIONS(kvmem_elastic_options, it.size = 4 * EXTENT,
                                            it.extent_size = EXTENT);
    OWNED(kvmem_region) region = NULL;
    kvmem_status status = kvmem_region_create_elastic(&options, &region, ERR);
    THEN(status, use_elastic(region));
    return status;
}

OPERATION(resize_a_layout) {
    static const uint64_t sizes[] = {3, 8, 1, 0, 2};
    OWNED(kvmem_layout) layout = NULL;
    kvmem_status status = build_elastic_layout(&layout);
    for (size_t i = 0; i < NUM(sizes) && status == KVMEM_STATUS_OK; i++)
        status = kvmem_layout_resize(layout, sizes[i], ERR);
    return status;
}

OPERATION(map_vmm_memory) {
    kvmem_vmm_options options = OPTIONS(kvmem_vmm_options, it.flags = KVMEM_VMM_POSIX_FD | KVMEM_VMM_RDMA,
                                        it.size = EXTENT);
    OWNED(kvmem_vmm_memory) memory = NULL;
    int32_t fd = -1;
    kvmem_status status = kvmem_vmm_memory_create(&options, &memory, ERR);
    THEN(status, kvmem_vmm_memory_export_fd(memory, &fd, ERR));
    if (status == KVMEM_STATUS_OK) {
        close(fd);
        status = map(memory, EXTENT);
    }
    return status;
}
