// SPDX-License-Identifier: Apache-2.0
// Memory of cuMemAlloc and cuMemAllocManaged. The host cannot access addresses of cuMemAlloc, as on a real
// device.
#include "call.h"
#include "contexts.h"
#include "memory.h"
#include "queue.h"
#include "spans.h"

#include <sys/mman.h>

/* In an area where a process rarely has other mappings, and where the sanitizers allow mappings. */
#define FIRST_ADDRESS UINT64_C(0x7ec000000000)

/* As on a real device, an allocation often starts at the end of the previous one. */
static void *map_after_last(size_t size, int fd) {
    static uint64_t next = FIRST_ADDRESS;
    void *start = map_inaccessible_near((void *)(uintptr_t)next, size, fd);
    next += (size + 4095) / 4096 * 4096;
    return start;
}

static CUresult allocate(CUdeviceptr *address, size_t size, size_t offset, span **allocated) {
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, context_current()->device},
    };
    TRY_GET(memory *, backing, memory_create(OF_ALLOCATION, size, &prop, &backing));
    void *start = map_after_last(offset + size, backing->fd);
    if (start == MAP_FAILED) {
        memory_destroy_if_unused(backing);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *allocated = span_add(SPAN_ALLOCATION, (uintptr_t)start + offset, size, backing, context_current());
    *address = (*allocated)->start;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size) {
    DRIVER_CALL(cuMemAlloc_v2);
    INVALID_IF(address == NULL || size == 0);
    span *allocated = NULL;
    return allocate(address, size, sim.allocation_offset, &allocated);
}

/* The host and all devices can access managed memory. */
CUresult cuMemAllocManaged(CUdeviceptr *address, size_t size, unsigned flags) {
    DRIVER_CALL(cuMemAllocManaged);
    INVALID_IF(address == NULL || size == 0 || flags != CU_MEM_ATTACH_GLOBAL);
    TRY_GET(span *, allocated, allocate(address, size, 0, &allocated));
    allocated->is_managed = true;
    mprotect((void *)(uintptr_t)allocated->start, size, PROT_READ | PROT_WRITE);
    return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr address) {
    DRIVER_CALL(cuMemFree_v2);
    if (address == 0) return RELEASED(CUDA_SUCCESS);
    span *freed = span_starting(SPAN_ALLOCATION, address);
    INVALID_IF(freed == NULL);
    queue_drain(freed->context);
    span_remove(freed);
    return RELEASED(CUDA_SUCCESS);
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
    DRIVER_CALL(cuMemGetInfo_v2);
    if (free != NULL) *free = sim.memory_per_device - sim.devices[context_current()->device].used;
    if (total != NULL) *total = sim.memory_per_device;
    return CUDA_SUCCESS;
}
