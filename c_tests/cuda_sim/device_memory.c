// SPDX-License-Identifier: Apache-2.0
// Plain memory of a device. The program gets addresses that it can't touch itself, as on a real device.
#include "call.h"
#include "contexts.h"
#include "memory.h"
#include "queue.h"
#include "spans.h"

#include <sys/mman.h>

/* Where nothing else of a process is mapped, as a rule, and the sanitizers let a program map memory. */
#define FIRST_ADDRESS UINT64_C(0x7ec000000000)

/* As on a real device, an allocation of whole granules often starts where the one before it ends. */
static void *map_beside_last(size_t size, int fd) {
    static uint64_t next = FIRST_ADDRESS;
    void *start = map_untouchable_near((void *)(uintptr_t)next, size, fd);
    next += (size + 4095) / 4096 * 4096;
    return start;
}

static CUresult allocate(CUdeviceptr *address, size_t size, size_t offset, span **allocated) {
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, context_current()->device},
    };
    memory *behind = NULL;
    TRY(memory_create(OF_ALLOCATION, size, &prop, &behind));
    void *start = map_beside_last(offset + size, behind->fd);
    if (start == MAP_FAILED) {
        memory_destroy_if_unused(behind);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *allocated = span_add(SPAN_ALLOCATION, (uintptr_t)start + offset, size, behind, context_current());
    *address = (*allocated)->start;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size) {
    DRIVER_CALL(cuMemAlloc_v2);
    INVALID_IF(address == NULL || size == 0);
    span *allocated = NULL;
    return allocate(address, size, sim.allocation_offset, &allocated);
}

/* The program can touch it, and devices can too. */
CUresult cuMemAllocManaged(CUdeviceptr *address, size_t size, unsigned flags) {
    DRIVER_CALL(cuMemAllocManaged);
    INVALID_IF(address == NULL || size == 0 || flags != CU_MEM_ATTACH_GLOBAL);
    span *allocated = NULL;
    TRY(allocate(address, size, 0, &allocated));
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
