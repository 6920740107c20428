// SPDX-License-Identifier: Apache-2.0
// Reserves addresses, maps them to memory handles, unmaps and frees them.
#include "call.h"
#include "memory.h"
#include "spans.h"
#include "vmm.h"

#include <sys/mman.h>

static CUdeviceptr align_up(CUdeviceptr address, uint64_t alignment) {
    return (address + alignment - 1) / alignment * alignment;
}

/* Maps more than the size, and unmaps the excess before and after it. */
static CUdeviceptr reserve_aligned(size_t size, size_t alignment, CUdeviceptr hint) {
    const uint64_t slack = alignment;
    const int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *mapped = mmap((void *)(uintptr_t)hint, size + slack, PROT_NONE, kind, -1, 0);
    if (mapped == MAP_FAILED) return 0;
    const CUdeviceptr first = (uintptr_t)mapped;
    const CUdeviceptr start = align_up(first, alignment);
    if (start > first) munmap(mapped, (size_t)(start - first));
    munmap((void *)(uintptr_t)(start + size), (size_t)(first + slack - start));
    return start;
}

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr hint,
                             unsigned long long flags) {
    DRIVER_CALL(cuMemAddressReserve);
    const bool is_power = (alignment & (alignment - 1)) == 0;
    INVALID_IF(address == NULL || size == 0 || !is_granular(size) || !is_power || flags != 0);
    RETURN_IF(!vmm_is_supported(), CUDA_ERROR_NOT_SUPPORTED);
    const CUdeviceptr start = reserve_aligned(size, alignment > GRANULARITY ? alignment : GRANULARITY, hint);
    RETURN_IF(start == 0, CUDA_ERROR_OUT_OF_MEMORY);
    reservation *added = list_add(&sim.reservations, sizeof(*added));
    added->start = start;
    added->size = size;
    *address = start;
    return CUDA_SUCCESS;
}

static bool is_mapped(CUdeviceptr start, size_t size) {
    EACH(span, known, sim.spans) {
        if (known->kind == SPAN_MAPPING && span_overlaps(known, start, size)) return true;
    }
    return false;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
    DRIVER_CALL(cuMemAddressFree);
    reservation *known = reservation_containing(address, size);
    INVALID_IF(known == NULL || known->start != address || known->size != size || is_mapped(address, size));
    munmap((void *)(uintptr_t)address, size);
    list_remove(&known->node);
    return RELEASED(CUDA_SUCCESS);
}

/* The mapping is inaccessible until cuMemSetAccess. */
CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    DRIVER_CALL(cuMemMap);
    INVALID_IF(size == 0 || !is_granular(address) || !is_granular(size) || flags != 0);
    memory *mapped = memory_of_handle(handle);
    RETURN_IF(offset != 0 || size != mapped->size, CUDA_ERROR_NOT_SUPPORTED);
    INVALID_IF(reservation_containing(address, size) == NULL || is_mapped(address, size));
    RETURN_IF(map_inaccessible((void *)(uintptr_t)address, size, mapped->fd) == MAP_FAILED,
              CUDA_ERROR_MAP_FAILED);
    span_add(SPAN_MAPPING, address, size, mapped, NULL);
    return CUDA_SUCCESS;
}

/* Mappings are unmapped as a whole. The range may contain addresses that are not mapped. */
CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
    DRIVER_CALL(cuMemUnmap);
    if (size == 0 || !is_granular(address) || !is_granular(size) || !reservation_containing(address, size))
        return CUDA_ERROR_INVALID_VALUE;
    EACH(span, known, sim.spans) {
        const bool is_inside = known->start >= address && known->start + known->size <= address + size;
        INVALID_IF(known->kind == SPAN_MAPPING && span_overlaps(known, address, size) && !is_inside);
    }
    EACH_TO_REMOVE(span, known, sim.spans) {
        if (known->kind == SPAN_MAPPING && span_overlaps(known, address, size)) span_remove(known);
    }
    return RELEASED(CUDA_SUCCESS);
}
