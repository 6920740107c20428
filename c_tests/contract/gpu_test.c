// SPDX-License-Identifier: Apache-2.0
// The GPU functions: NULL in every pointer argument, handles of the wrong type, and invalid values. They fail
// before the driver is called, so the results do not depend on a GPU.
#include "contract.h"

static _Alignas(4096) unsigned char memory[4096];

TEST(device_infos) {
    INVALID(kvmem_cuda_get_info, NULL);
    INVALID(kvmem_cuda_get_device_info, 0, NULL);
    static const uint8_t uuid[16];
    int32_t device = 0;
    INVALID(kvmem_cuda_find_device, uuid, NULL);
    INVALID_KEEPS(device, kvmem_cuda_find_device, NULL, &device);
    INVALID(kvmem_cuda_get_copy_rates, 0, 0, NULL);
    INVALID(kvmem_cuda_set_copy_rates, 0, 0, NULL, 1);
    INVALID(kvmem_cuda_get_copy_rates, 0, 1, NULL);
    INVALID(kvmem_cuda_set_copy_rates, 0, 1, NULL, 1);
    CHECK(kvmem_cuda_use_default_rates(-1, NULL) < 0);
    kvmem_rates_info info;
    INVALID_KEEPS(info, kvmem_cuda_describe_rates, NULL, 0, &info, NULL);
    kvmem_blob *text = NULL;
    REFUSED_NULLS(text, KVMEM_STATUS_CORRUPT, kvmem_cuda_describe_rates, "x", 1, NULL, &text);
}

TEST(regions) {
    kvmem_pinned_options pinned = OPTIONS(kvmem_pinned_options);
    kvmem_device_options device = OPTIONS(kvmem_device_options);
    kvmem_elastic_options elastic = OPTIONS(kvmem_elastic_options);
    kvmem_adopt_options adopt = OPTIONS(kvmem_adopt_options);
    pinned.size = device.size = elastic.size = adopt.size = 4096;
    adopt.address = memory;
    kvmem_region *region = NULL;
    INVALID_NULLS(region, kvmem_region_create_pinned, NULL, &region);
    INVALID(kvmem_region_create_pinned, &pinned, NULL);
    INVALID_NULLS(region, kvmem_region_create_device, NULL, &region);
    INVALID(kvmem_region_create_device, &device, NULL);
    INVALID_NULLS(region, kvmem_region_create_elastic, NULL, &region);
    INVALID(kvmem_region_create_elastic, &elastic, NULL);
    INVALID_NULLS(region, kvmem_region_adopt_device, NULL, 0, &region);
    INVALID(kvmem_region_adopt_device, &adopt, 0, NULL);
}

TEST(pools) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OPENED(kv_side, side, &config, NULL, 1);
    INVALID(kvmem_pool_set_current, 0, side.regions[0]);
    INVALID(kvmem_pool_commit, NULL, KVMEM_POOL_NOTHING);
    REFUSED(KVMEM_STATUS_INVALID_STATE, kvmem_pool_commit, side.regions[0], KVMEM_POOL_NOTHING);
    CHECK(kvmem_pool_malloc(1, 0, NULL) == NULL);
    CHECK(kvmem_pool_malloc(1, -1, NULL) == NULL);
    kvmem_pool_free(NULL, 1, 0, NULL);
    kvmem_pool_free(memory, 1, 0, NULL);
    EXPECT_OK(kvmem_pool_set_current(0, NULL, ERR));
}

TEST(only_elastic_regions_are_committed) {
    INVALID(kvmem_region_commit, NULL, 0, 4096);
    INVALID(kvmem_region_decommit, NULL, 0, 4096);
    INVALID(kvmem_layout_resize, NULL, 1);
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OPENED(kv_side, side, &config, NULL, 1);
    INVALID(kvmem_region_commit, side.regions[0], 0, 4096);
    INVALID(kvmem_region_decommit, side.regions[0], 0, 4096);
    REFUSED(KVMEM_STATUS_INVALID_STATE, kvmem_layout_resize, side.layout, 1);
    kv_side_check(&side);
}

TEST(virtual_memory) {
    kvmem_vmm_options options = OPTIONS(kvmem_vmm_options);
    options.size = 2 * MIB;
    uint64_t granularity = 0;
    INVALID_KEEPS(granularity, kvmem_vmm_get_granularity, NULL, KVMEM_GRANULARITY_MINIMUM, &granularity);
    INVALID_KEEPS(granularity, kvmem_vmm_get_granularity, &options, 99, &granularity);
    INVALID(kvmem_vmm_get_granularity, &options, KVMEM_GRANULARITY_MINIMUM, NULL);
    INVALID(kvmem_vmm_range_create, 2 * MIB, 0, NULL, NULL);
    kvmem_vmm_memory *created = NULL;
    INVALID_NULLS(created, kvmem_vmm_memory_create, NULL, &created);
    INVALID(kvmem_vmm_memory_create, &options, NULL);
    int32_t fd = 0;
    INVALID_KEEPS(fd, kvmem_vmm_memory_export_fd, NULL, &fd);
    kvmem_vmm_range_destroy(NULL);
    kvmem_vmm_memory_destroy(NULL);
}

TEST(handles) {
    kvmem_ipc_options options = OPTIONS(kvmem_ipc_options);
    kvmem_region *region = NULL;
    INVALID_NULLS(region, kvmem_region_open_ipc, NULL, &region);
    INVALID(kvmem_region_open_ipc, &options, NULL);
    INVALID_NULLS(region, kvmem_region_open_ipc, &options, &region); /* of 0 bytes */
    INVALID(kvmem_ipc_export, 0, NULL);
    kvmem_fabric_handle fabric;
    INVALID_KEEPS(fabric, kvmem_vmm_memory_export_fabric, NULL, &fabric);
    kvmem_vmm_memory *imported = NULL;
    INVALID_NULLS(imported, kvmem_vmm_memory_import_fabric, NULL, 2 * MIB, 0, &imported);
    INVALID(kvmem_vmm_memory_import_fabric, &fabric, 2 * MIB, 0, NULL);
    INVALID_NULLS(imported, kvmem_vmm_memory_import_fd, -1, 2 * MIB, 0, &imported);
    INVALID_NULLS(imported, kvmem_vmm_memory_import_fd, 0, 2 * MIB, -2, &imported);
    INVALID(kvmem_vmm_memory_import_fd, 0, 2 * MIB, 0, NULL);
    INVALID(kvmem_vmm_memory_retain, 4096, NULL);
}

TEST(virtual_mappings) {
    kvmem_vmm_mapping *mapping = NULL;
    kvmem_vmm_span span = {0};
    INVALID_NULLS(mapping, kvmem_vmm_mapping_create, NULL, 0, NULL, &span, &mapping);
    INVALID_KEEPS(span, kvmem_vmm_mapping_create, NULL, 0, NULL, &span, NULL);
    uint32_t access = 0;
    INVALID(kvmem_vmm_mapping_set_access, NULL, 0, KVMEM_ACCESS_READ_WRITE);
    INVALID_KEEPS(access, kvmem_vmm_mapping_get_access, NULL, 0, &access);
    kvmem_vmm_mapping_destroy(NULL);
}
