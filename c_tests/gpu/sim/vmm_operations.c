// SPDX-License-Identifier: Apache-2.0
// VMM memory with fabric handles and on a NUMA node of the host. Both must be enabled in the stand-in.
#include "operations.h"

#include "control.h"

#define SIZE (UINT64_C(2) << 20)
#define VALUE 0x6B

static kvmem_vmm_memory *exported;
static kvmem_fabric_handle handle;

void operations_open(void) {
    kvmem_vmm_options options = OPTIONS(kvmem_vmm_options, it.flags = KVMEM_VMM_FABRIC, it.size = SIZE);
    EXPECT_OK(kvmem_vmm_memory_create(&options, &exported, ERR));
    EXPECT_OK(kvmem_vmm_memory_export_fabric(exported, &handle, ERR));
}

void operations_close(void) { kvmem_vmm_memory_destroy(exported); }

static void write_byte(uint64_t address, unsigned char value) {
    SIM(sim_copy_bytes(address, (uintptr_t)&value, 1));
}

static unsigned char read_byte(uint64_t address) {
    unsigned char value = 0;
    SIM(sim_copy_bytes((uintptr_t)&value, address, 1));
    return value;
}

/* Maps memory for device 0. The first mapping writes a byte, which the second one reads. */
static kvmem_status use_mapping(kvmem_vmm_range *range, kvmem_vmm_memory *memory, bool is_first) {
    OWNED(kvmem_vmm_mapping) mapping = NULL;
    kvmem_vmm_span span = {0};
    uint32_t access = 0;
    kvmem_status status = kvmem_vmm_mapping_create(range, 0, memory, &span, &mapping, ERR);
    THEN(status, kvmem_vmm_mapping_set_access(mapping, 0, KVMEM_ACCESS_READ_WRITE, ERR));
    THEN(status, kvmem_vmm_mapping_get_access(mapping, 0, &access, ERR));
    if (status == KVMEM_STATUS_OK) {
        CHECK_EQ(access, KVMEM_ACCESS_READ_WRITE);
        if (is_first) write_byte(span.address + span.size - 1, VALUE);
        CHECK_EQ(read_byte(span.address + span.size - 1), VALUE);
    }
    return status;
}

static kvmem_status use(kvmem_vmm_memory *memory, kvmem_vmm_memory *again, uint64_t size) {
    OWNED(kvmem_vmm_range) range = NULL;
    kvmem_status status = kvmem_vmm_range_create(size, 0, NULL, &range, ERR);
    THEN(status, use_mapping(range, memory, true));
    THEN(status, use_mapping(range, again, false));
    return status;
}

OPERATION(export_by_fabric) {
    kvmem_vmm_options options = OPTIONS(kvmem_vmm_options, it.flags = KVMEM_VMM_FABRIC, it.size = SIZE);
    OWNED(kvmem_vmm_memory) memory = NULL;
    kvmem_fabric_handle made;
    kvmem_status status = kvmem_vmm_memory_create(&options, &memory, ERR);
    THEN(status, kvmem_vmm_memory_export_fabric(memory, &made, ERR));
    return status;
}

/* Two handles of one memory. */
OPERATION(import_by_fabric) {
    OWNED(kvmem_vmm_memory) memory = NULL;
    kvmem_status status = kvmem_vmm_memory_import_fabric(&handle, SIZE, 0, &memory, ERR);
    THEN(status, use(memory, exported, SIZE));
    return status;
}

REFUSED_OPERATION(import_by_fabric_of_the_wrong_device, KVMEM_STATUS_INVALID_ARGUMENT) {
    return TRIED(kvmem_vmm_memory, kvmem_vmm_memory_import_fabric, &handle, SIZE, 1);
}

OPERATION(map_memory_of_a_numa_node) {
    kvmem_vmm_options options = OPTIONS(kvmem_vmm_options, it.location = KVMEM_VMM_HOST_NUMA);
    OWNED(kvmem_vmm_memory) memory = NULL;
    kvmem_status status = kvmem_vmm_get_granularity(&options, KVMEM_GRANULARITY_MINIMUM, &options.size, ERR);
    THEN(status, kvmem_vmm_memory_create(&options, &memory, ERR));
    THEN(status, use(memory, memory, options.size));
    return status;
}

/* Checks that all extents are committed and writable. */
static void check_committed(const kvmem_region *region) {
    kvmem_region_info info;
    CHECK_EQ(kvmem_region_get_info(region, &info, NULL), KVMEM_STATUS_OK);
    CHECK_EQ(info.num_committed, 2);
    write_byte(info.address + SIZE - 1, VALUE);
    write_byte(info.address + SIZE, VALUE);
    CHECK_EQ(read_byte(info.address + SIZE), VALUE);
}

OPERATION(commit_elastic_memory_for_the_fabric) {
    kvmem_elastic_options options = OPTIONS(kvmem_elastic_options, it.flags = KVMEM_ELASTIC_FABRIC,
                                            it.size = 2 * SIZE, it.extent_size = SIZE);
    OWNED(kvmem_region) region = NULL;
    kvmem_status status = kvmem_region_create_elastic(&options, &region, ERR);
    THEN(status, kvmem_region_commit(region, 0, 2 * SIZE, ERR));
    if (status == KVMEM_STATUS_OK) {
        check_committed(region);
        status = kvmem_region_decommit(region, SIZE, SIZE, ERR);
    }
    return status;
}
