// SPDX-License-Identifier: Apache-2.0
// Memory handles: created, reference-counted, released.
#include "call.h"
#include "devices.h"
#include "memory.h"
#include "sharing_fabric.h"
#include "spans.h"
#include "vmm.h"

#include <string.h>

#define KNOWN_HANDLE_TYPES                                                                           \
    (unsigned)(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC)
#define WINDOWS_HANDLE_TYPES 6u

bool vmm_is_supported(void) {
    return attribute_is_set(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
}

bool is_granular(uint64_t size) { return size % GRANULARITY == 0; }

/* The same for all properties. */
CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option) {
    DRIVER_CALL(cuMemGetAllocationGranularity);
    if (granularity == NULL || prop == NULL || (unsigned)option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
        return CUDA_ERROR_INVALID_VALUE;
    RETURN_IF(!vmm_is_supported(), CUDA_ERROR_NOT_SUPPORTED);
    *granularity = GRANULARITY;
    return CUDA_SUCCESS;
}

static CUresult check_location(const CUmemLocation *location) {
    switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return device_exists(location->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        RETURN_IF(!attribute_is_set(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
                  CUDA_ERROR_NOT_SUPPORTED);
        return location->id == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
}

/* The attribute of fabric handles is set even if they do not work. */
static CUresult check_handle_types(unsigned types) {
    INVALID_IF((types & WINDOWS_HANDLE_TYPES) != 0);
    RETURN_IF((types & CU_MEM_HANDLE_TYPE_FABRIC) != 0 && !fabric_is_permitted(), CUDA_ERROR_NOT_PERMITTED);
    const bool wants_fd = (types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0;
    const CUdevice_attribute supports_fd = CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
    return wants_fd && !attribute_is_set(supports_fd) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

static CUresult check_prop(const CUmemAllocationProp *prop) {
    static const unsigned char zeros[sizeof(prop->allocFlags.reserved)];
    INVALID_IF(prop->type != CU_MEM_ALLOCATION_TYPE_PINNED || prop->allocFlags.usage != 0);
    INVALID_IF(memcmp(prop->allocFlags.reserved, zeros, sizeof(zeros)) != 0);
    const CUdevice_attribute supports_rdma = CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED;
    RETURN_IF(prop->allocFlags.gpuDirectRDMACapable != 0 && !attribute_is_set(supports_rdma),
              CUDA_ERROR_NOT_SUPPORTED);
    TRY(check_location(&prop->location));
    return check_handle_types(prop->requestedHandleTypes);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                     unsigned long long flags) {
    DRIVER_CALL(cuMemCreate);
    INVALID_IF(handle == NULL || prop == NULL || size == 0 || !is_granular(size) || flags != 0);
    RETURN_IF(!vmm_is_supported(), CUDA_ERROR_NOT_SUPPORTED);
    TRY(check_prop(prop));
    TRY_GET(memory *, created, memory_create(OF_HANDLE, size, prop, &created));
    created->prop.requestedHandleTypes &= KNOWN_HANDLE_TYPES;
    created->references = 1;
    *handle = created->handle;
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    DRIVER_CALL(cuMemRelease);
    memory *released = memory_find(handle);
    INVALID_IF(released == NULL);
    released->references--;
    memory_destroy_if_unused(released);
    return RELEASED(CUDA_SUCCESS);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
    DRIVER_CALL(cuMemRetainAllocationHandle);
    const span *known = span_at((uintptr_t)address);
    INVALID_IF(handle == NULL || known == NULL || known->kind != SPAN_MAPPING);
    known->memory->references++;
    *handle = known->memory->handle;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                CUmemGenericAllocationHandle handle) {
    DRIVER_CALL(cuMemGetAllocationPropertiesFromHandle);
    INVALID_IF(prop == NULL);
    *prop = memory_of_handle(handle)->prop;
    return CUDA_SUCCESS;
}
