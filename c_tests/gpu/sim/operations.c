// SPDX-License-Identifier: Apache-2.0
// The operations. What they answer is for whoever runs them to judge.
#include "operations.h"

#include "driver.h"
#include "engine.h"
#include "file_side.h"
#include "harness.h"
#include "kv.h"
#include "owner.h"

#include <string.h>
#include <unistd.h>

#define SIZE (UINT64_C(1) << 20)

static uint64_t allocation;
static span mappings;
static kv_side host;
static kvmem_layout *disk;
static CUstream stream;
static peer owner; /* of the two that follow */
static kvmem_ipc_handle shared;
static int shared_fd;

void operations_open(void) {
    owner = owner_start();
    shared = owner_allocate(&owner, 1, SIZE, 0, 1);
    shared_fd = owner_create(&owner, 0, 2 * SIZE, 2);
    allocation = engine_allocate(0, SIZE);
    span_open(&mappings, 0, 3, 3);
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    kv_side_open(&host, &config, NULL, 1);
    disk = temporary_disk_layout(&config, NULL, KVMEM_DISK_BUFFERED);
    enter_device(0);
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    leave_device(0);
}

void operations_close(void) {
    enter_device(0);
    CU(cuStreamDestroy_v2(stream));
    leave_device(0);
    kvmem_layout_destroy(disk);
    kv_side_close(&host);
    span_close(&mappings);
    engine_free(0, allocation);
    close(shared_fd);
    peer_finish(&owner);
}

static kvmem_status ask_a_device(void) {
    kvmem_cuda_device_info info;
    return kvmem_cuda_get_device_info(1, &info, ERR);
}

static kvmem_status ask_for_access(void) {
    bool can = false;
    return kvmem_cuda_can_access(0, 1, &can, ERR);
}

static kvmem_status create_device(int device, uint64_t size) {
    kvmem_device_options options;
    kvmem_device_options_init(&options, sizeof(options));
    options.device = device;
    options.size = size;
    kvmem_region *region = NULL;
    const kvmem_status status = kvmem_region_create_device(&options, &region, ERR);
    kvmem_region_destroy(region);
    return status;
}

static kvmem_status have_device_memory(void) {
    return create_device(1, SIZE);
}

static kvmem_status ask_too_much(void) {
    return create_device(0, UINT64_C(1) << 50);
}

static kvmem_status adopt(uint64_t address, uint64_t size) {
    kvmem_adopt_options options;
    kvmem_adopt_options_init(&options, sizeof(options));
    options.address = (void *)(uintptr_t)address;
    options.size = size;
    kvmem_region *region = NULL;
    const kvmem_status status = kvmem_region_adopt_device(&options, 0, &region, ERR);
    kvmem_region_destroy(region);
    return status;
}

static kvmem_status adopt_an_allocation(void) {
    return adopt(allocation + 16, SIZE - 16);
}

static kvmem_status adopt_mappings(void) {
    return adopt(mappings.address, 3 * mappings.granule);
}

static kvmem_status adopt_past_the_end(void) {
    return adopt(mappings.address, 3 * mappings.granule + 1);
}

static kvmem_status find_a_device(void) {
    int32_t device = 0;
    return kvmem_cuda_find_device(shared.uuid, &device, ERR);
}

static kvmem_status export_a_handle(void) {
    kvmem_ipc_handle handle;
    return kvmem_ipc_export(allocation + 16, &handle, ERR);
}

static kvmem_status open_ipc(uint64_t size, uint64_t base_size) {
    kvmem_ipc_options options;
    kvmem_ipc_options_init(&options, sizeof(options));
    memcpy(options.handle, shared.handle, sizeof(options.handle));
    options.device = 1;
    options.size = size;
    options.base_size = base_size;
    kvmem_region *region = NULL;
    const kvmem_status status = kvmem_region_open_ipc(&options, &region, ERR);
    kvmem_region_destroy(region);
    return status;
}

static kvmem_status open_memory_of_another(void) {
    return open_ipc(SIZE, SIZE);
}

static kvmem_status open_past_the_end(void) {
    return open_ipc(SIZE + 1, 0);
}

/* With the memory in the caller's hands. */
static kvmem_status map(kvmem_vmm_memory *memory, uint64_t size) {
    kvmem_vmm_range *range = NULL;
    kvmem_vmm_mapping *mapping = NULL;
    kvmem_status status = kvmem_vmm_range_create(size, 0, &range, ERR);
    if (status == KVMEM_STATUS_OK) {
        status = kvmem_vmm_mapping_create(range, 0, memory, &mapping, ERR);
    }
    if (status == KVMEM_STATUS_OK) {
        status = kvmem_vmm_mapping_set_access(mapping, 0, KVMEM_ACCESS_READ_WRITE, ERR);
    }
    uint32_t access = 0;
    if (status == KVMEM_STATUS_OK) {
        status = kvmem_vmm_mapping_get_access(mapping, 0, &access, ERR);
    }
    kvmem_vmm_mapping_destroy(mapping);
    kvmem_vmm_range_destroy(range);
    return status;
}

static kvmem_status import_memory(int32_t device) {
    kvmem_vmm_memory *memory = NULL;
    kvmem_status status = kvmem_vmm_memory_import_fd(shared_fd, 2 * SIZE, device, &memory, ERR);
    if (status == KVMEM_STATUS_OK) {
        status = map(memory, 2 * SIZE);
    }
    kvmem_vmm_memory_destroy(memory);
    return status;
}

static kvmem_status import_and_map(void) {
    return import_memory(0);
}

static kvmem_status import_of_the_wrong_device(void) {
    return import_memory(1);
}

static kvmem_status retain_and_map(void) {
    kvmem_vmm_memory *memory = NULL;
    kvmem_status status = kvmem_vmm_memory_retain(mappings.address + 1, &memory, ERR);
    if (status == KVMEM_STATUS_OK) {
        status = map(memory, mappings.granule);
    }
    kvmem_vmm_memory_destroy(memory);
    return status;
}

static int32_t cancel_at_half(uint64_t done, uint64_t total, void *user_data) {
    (void)user_data;
    return done >= total / 2;
}

static kvmem_status create_pinned(kvmem_progress_callback progress) {
    kvmem_pinned_options options;
    kvmem_pinned_options_init(&options, sizeof(options));
    options.size = 4 * SIZE;
    options.chunk_size = SIZE;
    options.progress = progress;
    kvmem_region *region = NULL;
    const kvmem_status status = kvmem_region_create_pinned(&options, &region, ERR);
    kvmem_region_destroy(region);
    return status;
}

static kvmem_status have_pinned_memory(void) {
    return create_pinned(NULL);
}

static kvmem_status cancel_pinned_memory(void) {
    return create_pinned(cancel_at_half);
}

/* A layout in new memory: a GPU's, or else pinned. */
static kvmem_status build(bool on_device, kvmem_layout **layout) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    kvmem_device_options device;
    kvmem_device_options_init(&device, sizeof(device));
    kvmem_pinned_options pinned;
    kvmem_pinned_options_init(&pinned, sizeof(pinned));
    kvmem_layout_options options;
    kvmem_layout_options_init(&options, sizeof(options));
    options.config = &config;
    options.source = KVMEM_LAYOUT_ALLOCATE;
    options.device = on_device ? &device : NULL;
    options.pinned = on_device ? NULL : &pinned;
    return kvmem_layout_build(&options, layout, ERR);
}

static kvmem_status have_a_layout(bool on_device) {
    kvmem_layout *layout = NULL;
    const kvmem_status status = build(on_device, &layout);
    kvmem_layout_destroy(layout);
    return status;
}

static kvmem_status have_a_layout_on_a_device(void) {
    return have_a_layout(true);
}

static kvmem_status have_a_layout_in_pinned_memory(void) {
    return have_a_layout(false);
}

#define EXTENT (UINT64_C(2) << 20)

static kvmem_elastic_info elastic_info(const kvmem_region *region) {
    kvmem_elastic_info info = {0};
    kvmem_region_get_elastic_info(region, &info, NULL);
    return info;
}

/* What could not be done has changed nothing. */
static void check_unchanged(const kvmem_region *region, const kvmem_elastic_info *before) {
    const kvmem_elastic_info after = elastic_info(region);
    CHECK_EQ(after.num_committed, before->num_committed);
    CHECK_EQ(after.generation, before->generation);
}

static kvmem_status grow(kvmem_region *region, uint64_t first, uint64_t count) {
    const kvmem_elastic_info before = elastic_info(region);
    const kvmem_status status = kvmem_region_commit(region, first * EXTENT, count * EXTENT, ERR);
    if (status != KVMEM_STATUS_OK) {
        check_unchanged(region, &before);
    }
    return status;
}

static kvmem_status use_elastic(kvmem_region *region) {
    kvmem_status status = grow(region, 1, 1);
    if (status == KVMEM_STATUS_OK) {
        status = grow(region, 0, 4);
    }
    if (status == KVMEM_STATUS_OK) {
        status = kvmem_region_decommit(region, 2 * EXTENT, EXTENT, ERR);
    }
    return status;
}

static kvmem_status have_elastic_memory(void) {
    kvmem_elastic_options options;
    kvmem_elastic_options_init(&options, sizeof(options));
    options.size = 4 * EXTENT;
    options.extent_size = EXTENT;
    kvmem_region *region = NULL;
    kvmem_status status = kvmem_region_create_elastic(&options, &region, ERR);
    if (status == KVMEM_STATUS_OK) {
        status = use_elastic(region);
    }
    kvmem_region_destroy(region);
    return status;
}

/* Eight blocks of 1 MiB. */
static kvmem_status build_elastic(kvmem_layout **layout) {
    kvmem_layout_config config = kv_config(&kv_kinds[0]);
    config.num_blocks = 8;
    config.num_layers = 2;
    config.page_size = 16;
    config.inner_dim = 8192;
    kvmem_elastic_options elastic;
    kvmem_elastic_options_init(&elastic, sizeof(elastic));
    kvmem_layout_options options;
    kvmem_layout_options_init(&options, sizeof(options));
    options.config = &config;
    options.source = KVMEM_LAYOUT_ALLOCATE;
    options.elastic = &elastic;
    return kvmem_layout_build(&options, layout, ERR);
}

static kvmem_status resize_a_layout(void) {
    static const uint64_t sizes[] = {3, 8, 1, 0, 2};
    kvmem_layout *layout = NULL;
    kvmem_status status = build_elastic(&layout);
    for (size_t i = 0; i < NUM(sizes) && status == KVMEM_STATUS_OK; i++) {
        status = kvmem_layout_resize(layout, sizes[i], ERR);
    }
    kvmem_layout_destroy(layout);
    return status;
}

static kvmem_status have_virtual_memory(void) {
    kvmem_vmm_options options;
    kvmem_vmm_options_init(&options, sizeof(options));
    options.flags = KVMEM_VMM_POSIX_FD | KVMEM_VMM_RDMA;
    options.size = EXTENT;
    kvmem_vmm_memory *memory = NULL;
    int32_t fd = -1;
    kvmem_status status = kvmem_vmm_memory_create(&options, &memory, ERR);
    if (status == KVMEM_STATUS_OK) {
        status = kvmem_vmm_memory_export_fd(memory, &fd, ERR);
    }
    if (status == KVMEM_STATUS_OK) {
        close(fd);
        status = map(memory, EXTENT);
    }
    kvmem_vmm_memory_destroy(memory);
    return status;
}

/* How a transfer is started. */
typedef enum start { ON_ITS_OWN, ON_A_STREAM } start;

static kvmem_status submit(kvmem_transfer *transfer, start start) {
    return start == ON_A_STREAM ? kvmem_transfer_submit_on_stream(transfer, stream, ERR)
                                : kvmem_transfer_submit(transfer, ERR);
}

static kvmem_status move_by(const kvmem_layout *source, const kvmem_layout *destination, uint32_t path,
                            start start) {
    static const kvmem_block_pair pairs[] = {{6, 0}, {0, 5}};
    const kv_move scattered = {pairs, NUM(pairs), 0, 0, 3};
    kvmem_transfer_options options = kv_transfer_options(&scattered);
    options.path = path;
    kvmem_transfer *transfer = NULL;
    kvmem_status status = kvmem_transfer_create(source, destination, &options, &transfer, ERR);
    if (status == KVMEM_STATUS_OK) {
        status = submit(transfer, start);
    }
    if (status == KVMEM_STATUS_OK) {
        status = kvmem_transfer_wait(transfer, PATIENCE, ERR);
    }
    kvmem_transfer_destroy(transfer);
    return status;
}

/* A stream waits for a layer, and for all. */
static kvmem_status move_by_layer(const kvmem_layout *source, const kvmem_layout *destination, uint32_t path,
                                  start start) {
    static const kvmem_block_pair pairs[] = {{6, 0}, {0, 5}};
    const kv_move scattered = {pairs, NUM(pairs), 0, 0, 3};
    kvmem_transfer_options options = kv_transfer_options(&scattered);
    options.path = path;
    options.flags = KVMEM_TRANSFER_BY_LAYER;
    kvmem_transfer *transfer = NULL;
    kvmem_status status = kvmem_transfer_create(source, destination, &options, &transfer, ERR);
    if (status == KVMEM_STATUS_OK) {
        status = submit(transfer, start);
    }
    if (status == KVMEM_STATUS_OK) {
        status = kvmem_transfer_wait_on_stream(transfer, 1, stream, ERR);
    }
    if (status == KVMEM_STATUS_OK) {
        status = kvmem_transfer_wait_on_stream(transfer, 0, stream, ERR);
    }
    if (status == KVMEM_STATUS_OK) {
        status = kvmem_transfer_wait(transfer, PATIENCE, ERR);
    }
    kvmem_transfer_destroy(transfer);
    return status;
}

static kvmem_status move(const kvmem_layout *source, const kvmem_layout *destination) {
    return move_by(source, destination, 0, ON_ITS_OWN);
}

static kvmem_status copy_to_a_device(void) {
    kvmem_layout *layout = NULL;
    kvmem_status status = build(true, &layout);
    if (status == KVMEM_STATUS_OK) {
        status = move(host.layout, layout);
    }
    kvmem_layout_destroy(layout);
    return status;
}

static kvmem_status copy_from_a_device(void) {
    kvmem_layout *pinned = NULL;
    kvmem_layout *device = NULL;
    kvmem_status status = build(false, &pinned);
    if (status == KVMEM_STATUS_OK) {
        status = build(true, &device);
    }
    if (status == KVMEM_STATUS_OK) {
        status = move(device, pinned);
    }
    kvmem_layout_destroy(pinned);
    kvmem_layout_destroy(device);
    return status;
}

/* A piece a slot, so that a run goes round the ring. */
static kvmem_status move_by_disk(bool to_disk) {
    static const kvmem_block_pair pairs[] = {{6, 0}, {0, 5}};
    const kv_move scattered = {pairs, NUM(pairs), 0, 0, 3};
    kvmem_transfer_options options = kv_transfer_options(&scattered);
    kvmem_layout *device = NULL;
    kvmem_transfer *transfer = NULL;
    kvmem_status status = build(true, &device);
    options.staging_size = 4 * kv_piece_size(&host.config);
    if (status == KVMEM_STATUS_OK) {
        status = kvmem_transfer_create(to_disk ? device : disk, to_disk ? disk : device, &options, &transfer,
                                       ERR);
    }
    if (status == KVMEM_STATUS_OK) {
        status = kvmem_transfer_submit(transfer, ERR);
    }
    if (status == KVMEM_STATUS_OK) {
        status = kvmem_transfer_wait(transfer, PATIENCE, ERR);
    }
    kvmem_transfer_destroy(transfer);
    kvmem_layout_destroy(device);
    return status;
}

static kvmem_status copy_from_a_device_to_disk(void) {
    return move_by_disk(true);
}

static kvmem_status copy_from_disk_to_a_device(void) {
    return move_by_disk(false);
}

typedef kvmem_status move_function(const kvmem_layout *source, const kvmem_layout *destination, uint32_t path,
                                   start start);

static kvmem_status copy_from_a_device_as(move_function *as, uint32_t path, start start) {
    kvmem_layout *pinned = NULL;
    kvmem_layout *device = NULL;
    kvmem_status status = build(false, &pinned);
    if (status == KVMEM_STATUS_OK) {
        status = build(true, &device);
    }
    if (status == KVMEM_STATUS_OK) {
        status = as(device, pinned, path, start);
    }
    kvmem_layout_destroy(pinned);
    kvmem_layout_destroy(device);
    return status;
}

static kvmem_status copy_from_a_device_by(uint32_t path, start start) {
    return copy_from_a_device_as(move_by, path, start);
}

static kvmem_status copy_by_layer(void) {
    return copy_from_a_device_as(move_by_layer, KVMEM_PATH_CUDA_KERNEL, ON_ITS_OWN);
}

static kvmem_status copy_staged_by_layer(void) {
    return copy_from_a_device_as(move_by_layer, KVMEM_PATH_CUDA_STAGED, ON_ITS_OWN);
}

static kvmem_status copy_by_layer_on_a_stream(void) {
    return copy_from_a_device_as(move_by_layer, KVMEM_PATH_CUDA_COPY, ON_A_STREAM);
}

static kvmem_status copy_by_batch(void) {
    return copy_from_a_device_by(KVMEM_PATH_CUDA_BATCH, ON_ITS_OWN);
}

static kvmem_status copy_by_kernel(void) {
    return copy_from_a_device_by(KVMEM_PATH_CUDA_KERNEL, ON_ITS_OWN);
}

static kvmem_status copy_staged(void) {
    return copy_from_a_device_by(KVMEM_PATH_CUDA_STAGED, ON_ITS_OWN);
}

static kvmem_status copy_by_kernel_on_a_stream(void) {
    return copy_from_a_device_by(KVMEM_PATH_CUDA_KERNEL, ON_A_STREAM);
}

static kvmem_status copy_staged_on_a_stream(void) {
    return copy_from_a_device_by(KVMEM_PATH_CUDA_STAGED, ON_A_STREAM);
}

static kvmem_status copy_one_by_one_on_a_stream(void) {
    return copy_from_a_device_by(KVMEM_PATH_CUDA_COPY, ON_A_STREAM);
}

const operation operations[] = {
    {"asking a device", ask_a_device, KVMEM_STATUS_OK},
    {"asking for access", ask_for_access, KVMEM_STATUS_OK},
    {"device memory", have_device_memory, KVMEM_STATUS_OK},
    {"too much device memory", ask_too_much, KVMEM_STATUS_OUT_OF_MEMORY},
    {"adopting an allocation", adopt_an_allocation, KVMEM_STATUS_OK},
    {"adopting mappings", adopt_mappings, KVMEM_STATUS_OK},
    {"adopting past the end", adopt_past_the_end, KVMEM_STATUS_OUT_OF_RANGE},
    {"finding a device", find_a_device, KVMEM_STATUS_OK},
    {"exporting a handle", export_a_handle, KVMEM_STATUS_OK},
    {"opening a handle", open_memory_of_another, KVMEM_STATUS_OK},
    {"opening past the end", open_past_the_end, KVMEM_STATUS_OUT_OF_RANGE},
    {"importing a descriptor", import_and_map, KVMEM_STATUS_OK},
    {"importing of the wrong device", import_of_the_wrong_device, KVMEM_STATUS_INVALID_ARGUMENT},
    {"retaining a mapping", retain_and_map, KVMEM_STATUS_OK},
    {"pinned memory", have_pinned_memory, KVMEM_STATUS_OK},
    {"cancelled pinned memory", cancel_pinned_memory, KVMEM_STATUS_CANCELLED},
    {"a layout on a device", have_a_layout_on_a_device, KVMEM_STATUS_OK},
    {"a layout in pinned memory", have_a_layout_in_pinned_memory, KVMEM_STATUS_OK},
    {"elastic memory", have_elastic_memory, KVMEM_STATUS_OK},
    {"virtual memory", have_virtual_memory, KVMEM_STATUS_OK},
    {"resizing a layout", resize_a_layout, KVMEM_STATUS_OK},
    {"a copy to a device", copy_to_a_device, KVMEM_STATUS_OK},
    {"a copy from a device", copy_from_a_device, KVMEM_STATUS_OK},
    {"a copy in a batch", copy_by_batch, KVMEM_STATUS_OK},
    {"a copy by the kernel", copy_by_kernel, KVMEM_STATUS_OK},
    {"a staged copy", copy_staged, KVMEM_STATUS_OK},
    {"a copy by the kernel on a stream", copy_by_kernel_on_a_stream, KVMEM_STATUS_OK},
    {"a staged copy on a stream", copy_staged_on_a_stream, KVMEM_STATUS_OK},
    {"a copy one by one on a stream", copy_one_by_one_on_a_stream, KVMEM_STATUS_OK},
    {"a copy by layer", copy_by_layer, KVMEM_STATUS_OK},
    {"a staged copy by layer", copy_staged_by_layer, KVMEM_STATUS_OK},
    {"a copy by layer on a stream", copy_by_layer_on_a_stream, KVMEM_STATUS_OK},
    {"a copy to disk", copy_from_a_device_to_disk, KVMEM_STATUS_OK},
    {"a copy from disk", copy_from_disk_to_a_device, KVMEM_STATUS_OK},
};
const size_t num_operations = NUM(operations);
