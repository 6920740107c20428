// SPDX-License-Identifier: Apache-2.0
// Attributes of devices: the values of an H200, unless a test sets others.
#include "call.h"
#include "cuda_sim.h"
#include "devices.h"
#include "sharing_fabric.h"

typedef struct attribute_info {
    CUdevice_attribute attribute;
    int value;
    bool is_set; /* by a test */
    int set_to;
} attribute_info;

#define ATTRIBUTE(name, value) {CU_DEVICE_ATTRIBUTE_##name, value, false, 0}

static attribute_info attributes[] = {
    ATTRIBUTE(MAX_THREADS_PER_BLOCK, 1024),
    ATTRIBUTE(WARP_SIZE, 32),
    ATTRIBUTE(MULTIPROCESSOR_COUNT, 132),
    ATTRIBUTE(INTEGRATED, 0),
    ATTRIBUTE(CAN_MAP_HOST_MEMORY, 1),
    /* unknown: rates are measured with little memory, which takes little time here */
    ATTRIBUTE(L2_CACHE_SIZE, 0),
    ATTRIBUTE(PCI_BUS_ID, 0),
    ATTRIBUTE(ASYNC_ENGINE_COUNT, 3),
    ATTRIBUTE(UNIFIED_ADDRESSING, 1),
    ATTRIBUTE(PCI_DOMAIN_ID, 0),
    ATTRIBUTE(COMPUTE_CAPABILITY_MAJOR, 9),
    ATTRIBUTE(COMPUTE_CAPABILITY_MINOR, 0),
    ATTRIBUTE(STREAM_PRIORITIES_SUPPORTED, 1),
    ATTRIBUTE(CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1),
    ATTRIBUTE(HOST_REGISTER_SUPPORTED, 1),
    ATTRIBUTE(VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1),
    ATTRIBUTE(HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1),
    ATTRIBUTE(GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 1),
    ATTRIBUTE(READ_ONLY_HOST_REGISTER_SUPPORTED, 0), /* not known of an H200: the stricter value */
    ATTRIBUTE(MEMORY_POOLS_SUPPORTED, 1),
    ATTRIBUTE(GPU_DIRECT_RDMA_SUPPORTED, 1),
    ATTRIBUTE(DMA_BUF_SUPPORTED, 1),
    /* although creation fails, unless a test sets sim_set_fabric */
    ATTRIBUTE(HANDLE_TYPE_FABRIC_SUPPORTED, 1),
    ATTRIBUTE(MULTICAST_SUPPORTED, 0),
    ATTRIBUTE(HOST_NUMA_ID, 0), ATTRIBUTE(HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1),
};
#define NUM_ATTRIBUTES (sizeof(attributes) / sizeof(attributes[0]))

static attribute_info *find(CUdevice_attribute attribute) {
    for (size_t i = 0; i < NUM_ATTRIBUTES; i++) {
        if (attributes[i].attribute == attribute) return &attributes[i];
    }
    return NULL;
}

bool attribute_get(CUdevice_attribute attribute, int *value) {
    const attribute_info *found = find(attribute);
    if (found != NULL) *value = found->is_set ? found->set_to : found->value;
    return found != NULL;
}

bool attribute_is_set(CUdevice_attribute attribute) {
    int value = 0;
    return attribute_get(attribute, &value) && value != 0;
}

void attributes_reset(void) {
    for (size_t i = 0; i < NUM_ATTRIBUTES; i++) attributes[i].is_set = false;
    sim.no_peer_access = false;
    sim.ipc_ordinal_of_opener = false;
    sim.allocation_offset = 0;
    fabric_reset();
}

void attribute_set(CUdevice_attribute attribute, int value) {
    attribute_info *found = find(attribute);
    if (found == NULL) sim_crash("a test sets attribute %d, which the devices do not have", (int)attribute);
    found->is_set = true;
    found->set_to = value;
}

void sim_set_attribute(CUdevice_attribute attribute, int value) {
    LOCKED;
    attribute_set(attribute, value);
}
