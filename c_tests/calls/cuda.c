// SPDX-License-Identifier: Apache-2.0
// Calls on GPUs: devices, rates, driver handles, and virtual memory management.
#include "driver.h"
#include "options.h"
#include "table.h"

#define GRANULE (2 * MIB)

static void get_cuda_info(fuzz *fuzz) {
    kvmem_cuda_info info;
    TRY(fuzz, kvmem_cuda_get_info, or_null(fuzz, &info));
}

static void get_device_info(fuzz *fuzz) {
    kvmem_cuda_device_info info;
    if (TRY(fuzz, kvmem_cuda_get_device_info, random_device(fuzz), &info) == KVMEM_STATUS_OK) {
        int32_t device = -1;
        info.uuid[0] ^= random_one_in(fuzz, 6);
        TRY(fuzz, kvmem_cuda_find_device, or_null(fuzz, info.uuid), or_null(fuzz, &device));
    }
}

/* Serialized rates, sometimes damaged. */
static void copy_rates(fuzz *fuzz) {
    const int32_t device = random_device(fuzz), peer = random_one_in(fuzz, 2) ? device : random_device(fuzz);
    OWNED(kvmem_blob) rates = NULL;
    TRY(fuzz, kvmem_cuda_get_copy_rates, device, peer, or_null(fuzz, &rates));
    const void *data = random_one_in(fuzz, 10) ? NULL : kvmem_blob_data(rates);
    const size_t size = data != NULL ? kvmem_blob_size(rates) - (random_one_in(fuzz, 10) ? 1 : 0) : 0;
    kvmem_rates_info info;
    OWNED(kvmem_blob) text = NULL;
    TRY(fuzz, kvmem_cuda_describe_rates, data, size, or_null(fuzz, &info), or_null(fuzz, &text));
    TRY(fuzz, kvmem_cuda_set_copy_rates, device, peer, data, size);
}

/* Allocates and frees blocks of a pool, which gets no other blocks: afterwards the region is no pool. */
static void pool(fuzz *fuzz) {
    kvmem_region *region = table_pick(fuzz, REGIONS);
    const int32_t device = random_device(fuzz);
    TRY(fuzz, kvmem_pool_set_current, device, region);
    void *blocks[4];
    for (size_t i = 0; i < 4; i++)
        blocks[i] = DO(fuzz, kvmem_pool_malloc, random_one_in(fuzz, 10) ? random_size(fuzz, 4 * MIB) : 4096,
                       device, NULL);
    TRY(fuzz, kvmem_pool_commit, region, (uint32_t)random_below(fuzz, 4));
    for (size_t i = 0; i < 4; i++) DO(fuzz, kvmem_pool_free, blocks[i], 4096, device, NULL);
    if (random_one_in(fuzz, 10)) kvmem_pool_free(blocks, 1, device, NULL);
    TRY(fuzz, kvmem_pool_set_current, device, NULL);
}

static void default_rates(fuzz *fuzz) { TRY(fuzz, kvmem_cuda_use_default_rates, random_device(fuzz)); }

/* Opens the handle in the exporting process, which behaves like another process. */
static void ipc(fuzz *fuzz) {
    const kvmem_region *region = table_pick(fuzz, REGIONS);
    kvmem_region_info info;
    if (TRY(fuzz, kvmem_region_get_info, region, &info) != KVMEM_STATUS_OK) return;
    kvmem_ipc_handle handle;
    memset(&handle, 0, sizeof(handle));
    TRY(fuzz, kvmem_ipc_export, random_one_in(fuzz, 20) ? random_next(fuzz) : info.address,
        or_null(fuzz, &handle));
    FUZZ_OPTIONS(kvmem_ipc_options, options);
    memcpy(options.handle, handle.handle, sizeof(options.handle));
    options.flags = random_flags(fuzz, KVMEM_IPC_FOR_DEVICE);
    options.size = random_size(fuzz, MIB);
    options.device = random_device(fuzz);
    options.for_device = options.flags != 0 ? random_device(fuzz) : 0;
    options.struct_size = random_struct_size(fuzz, sizeof(options));
    CREATE(fuzz, REGIONS, kvmem_region_open_ipc, or_null(fuzz, &options));
}

static kvmem_vmm_options vmm_options(fuzz *fuzz) {
    FUZZ_OPTIONS(kvmem_vmm_options, options);
    const uint64_t shareable = KVMEM_VMM_POSIX_FD | KVMEM_VMM_FABRIC;
    options.flags = random_one_in(fuzz, 2) ? shareable : random_flags(fuzz, shareable | KVMEM_VMM_RDMA);
    options.size =
        random_one_in(fuzz, 20) ? random_size(fuzz, 4 * MIB) : GRANULE * (1 + random_below(fuzz, 2));
    options.location = random_one_in(fuzz, 8) ? (uint32_t)random_below(fuzz, 4) : 0;
    options.id = random_device(fuzz);
    options.struct_size = random_struct_size(fuzz, sizeof(options));
    return options;
}

static void get_granularity(fuzz *fuzz) {
    const kvmem_vmm_options options = vmm_options(fuzz);
    uint64_t granularity = 0;
    TRY(fuzz, kvmem_vmm_get_granularity, or_null(fuzz, &options), (uint32_t)random_below(fuzz, 3),
        or_null(fuzz, &granularity));
}

static void create_range(fuzz *fuzz) {
    static const uint64_t alignments[] = {0, 0, GRANULE, 3, UINT64_C(1) << 63};
    const uint64_t size =
        random_one_in(fuzz, 20) ? random_size(fuzz, 8 * MIB) : GRANULE * (1 + random_below(fuzz, 4));
    kvmem_vmm_span span = {0};
    CREATE(fuzz, RANGES, kvmem_vmm_range_create, size, random_of(fuzz, alignments), or_null(fuzz, &span));
}

static void create_memory(fuzz *fuzz) {
    const kvmem_vmm_options options = vmm_options(fuzz);
    CREATE(fuzz, MEMORIES, kvmem_vmm_memory_create, or_null(fuzz, &options));
}

/* Also retains the memory of the mapping. No other thread knows the mapping before it is in the table. */
static void create_mapping(fuzz *fuzz) {
    kvmem_vmm_range *range = table_pick(fuzz, RANGES);
    const uint64_t offset = random_one_in(fuzz, 20) ? random_next(fuzz) : GRANULE * random_below(fuzz, 3);
    kvmem_vmm_span span = {0};
    kvmem_vmm_mapping *mapping = POISON;
    const kvmem_status status = TRY(fuzz, kvmem_vmm_mapping_create, range, offset,
                                    table_pick(fuzz, MEMORIES), or_null(fuzz, &span), &mapping);
    if (status == KVMEM_STATUS_OK) {
        TRY(fuzz, kvmem_vmm_mapping_set_access, mapping, random_device(fuzz), KVMEM_ACCESS_READ_WRITE);
        CREATE(fuzz, MEMORIES, kvmem_vmm_memory_retain,
               random_one_in(fuzz, 20) ? random_next(fuzz) : span.address);
    }
    check_created(fuzz, MAPPINGS, status, mapping, true);
}

static void set_access(fuzz *fuzz) {
    static const uint32_t accesses[] = {KVMEM_ACCESS_READ_WRITE, KVMEM_ACCESS_READ, KVMEM_ACCESS_NONE, 2};
    TRY(fuzz, kvmem_vmm_mapping_set_access, table_pick(fuzz, MAPPINGS), random_device(fuzz),
        random_of(fuzz, accesses));
}

static void get_access(fuzz *fuzz) {
    uint32_t access = 0;
    TRY(fuzz, kvmem_vmm_mapping_get_access, table_pick(fuzz, MAPPINGS), random_device(fuzz),
        or_null(fuzz, &access));
}

static void export_and_import(fuzz *fuzz) {
    const kvmem_vmm_memory *memory = table_pick(fuzz, MEMORIES);
    int32_t fd = -1;
    TRY(fuzz, kvmem_vmm_memory_export_fd, memory, or_null(fuzz, &fd));
    const int32_t device = random_one_in(fuzz, 3) ? KVMEM_VMM_ANY_DEVICE : random_device(fuzz);
    CREATE(fuzz, MEMORIES, kvmem_vmm_memory_import_fd, fd, GRANULE * random_below(fuzz, 3), device);
    if (fd >= 0) close(fd);
}

static void export_and_import_fabric(fuzz *fuzz) {
    const kvmem_vmm_memory *memory = table_pick(fuzz, MEMORIES);
    kvmem_fabric_handle handle;
    memset(&handle, 0, sizeof(handle));
    TRY(fuzz, kvmem_vmm_memory_export_fabric, memory, or_null(fuzz, &handle));
    const int32_t device = random_one_in(fuzz, 3) ? KVMEM_VMM_ANY_DEVICE : random_device(fuzz);
    CREATE(fuzz, MEMORIES, kvmem_vmm_memory_import_fabric, or_null(fuzz, &handle),
           GRANULE * random_below(fuzz, 3), device);
}

DESTROYS(destroy_range, RANGES)
DESTROYS(destroy_memory, MEMORIES)
DESTROYS(destroy_mapping, MAPPINGS)

const operation cuda_operations[] = {
    OPERATION(1, get_cuda_info),
    OPERATION(1, get_device_info),
    OPERATION(1, copy_rates),
    OPERATION(1, default_rates),
    OPERATION_WITH(3, pool, BIT(REGIONS), 0),
    OPERATION_WITH(3, ipc, BIT(REGIONS), 0),
    OPERATION(1, get_granularity),
    OPERATION_WITH(3, create_range, 0, BIT(RANGES)),
    OPERATION_WITH(3, create_memory, 0, BIT(MEMORIES)),
    OPERATION_WITH(6, create_mapping, BIT(RANGES) | BIT(MEMORIES), BIT(MAPPINGS)),
    OPERATION_WITH(3, set_access, BIT(MAPPINGS), 0),
    OPERATION_WITH(1, get_access, BIT(MAPPINGS), 0),
    OPERATION_WITH(4, export_and_import, BIT(MEMORIES), 0),
    OPERATION_WITH(2, export_and_import_fabric, BIT(MEMORIES), 0),
    OPERATION_WITH(2, destroy_range, BIT(RANGES), 0),
    OPERATION_WITH(2, destroy_memory, BIT(MEMORIES), 0),
    OPERATION_WITH(3, destroy_mapping, BIT(MAPPINGS), 0),
    {0},
};
