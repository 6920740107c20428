// SPDX-License-Identifier: Apache-2.0
// Each allocation retains the primary context of its device.
#include "engine.h"

#include "driver.h"

#include <sys/mman.h>

uint64_t engine_allocate(int device, uint64_t size) {
    CUdeviceptr address = 0;
    retain_device(device);
    CU_ON(device, cuMemAlloc_v2(&address, size));
    return address;
}

void engine_free(int device, uint64_t address) {
    CU_ON(device, cuMemFree_v2(address));
    release_device(device);
}

void engine_free_scoped(const engine_memory *memory) { engine_free(memory->device, memory->address); }

void engine_forget_lost(int device) { release_device(device); }

void *engine_allocate_host(int device, uint64_t size) {
    void *address = NULL;
    retain_device(device);
    CU_ON(device, cuMemHostAlloc(&address, size, CU_MEMHOSTALLOC_PORTABLE));
    return address;
}

void engine_free_host(int device, void *address) {
    CU_ON(device, cuMemFreeHost(address));
    release_device(device);
}

#define PAGE UINT64_C(4096)

void locked_parts_open(locked_parts *locked_parts, int device) {
    locked_parts->device = device;
    locked_parts->address = mmap(NULL, locked_parts->size, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(locked_parts->address != MAP_FAILED);
    retain_device(device);
    enter_device(device);
    for (size_t i = 0; i < locked_parts->num_parts; i++)
        CU(cuMemHostRegister_v2(locked_parts->address + locked_parts->starts[i] * PAGE,
                                (locked_parts->ends[i] - locked_parts->starts[i]) * PAGE,
                                CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
    leave_device(device);
}

/* After a reset of the device the memory is unlocked already. */
static void unlock(void *address) {
    const CUresult result = driver_get()->cuMemHostUnregister(address);
    CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

void locked_parts_close(locked_parts *locked_parts) {
    enter_device(locked_parts->device);
    for (size_t i = 0; i < locked_parts->num_parts; i++)
        unlock(locked_parts->address + locked_parts->starts[i] * PAGE);
    leave_device(locked_parts->device);
    release_device(locked_parts->device);
    munmap(locked_parts->address, locked_parts->size);
}

/* Adjacent allocations are common but not guaranteed: allocates until two are adjacent. */
#define CANDIDATES 32

/* Finds an allocation that is adjacent to the last one. */
static bool find_adjacent(const uint64_t *allocated, size_t count, adjacent *found) {
    for (size_t i = 0; i + 1 < count; i++) {
        const uint64_t first = allocated[i] < allocated[count - 1] ? allocated[i] : allocated[count - 1];
        const uint64_t second = allocated[i] + allocated[count - 1] - first;
        if (first + found->size == second) {
            found->addresses[0] = first;
            found->addresses[1] = second;
            return true;
        }
    }
    return false;
}

void adjacent_open(adjacent *adjacent, int device) {
    uint64_t allocated[CANDIDATES];
    size_t count = 0;
    *adjacent = (struct adjacent){.device = device, .size = 2 * MIB};
    while (!find_adjacent(allocated, count, adjacent)) {
        CHECK(count < CANDIDATES);
        allocated[count++] = engine_allocate(device, adjacent->size);
    }
    for (size_t i = 0; i < count; i++) {
        if (allocated[i] != adjacent->addresses[0] && allocated[i] != adjacent->addresses[1])
            engine_free(device, allocated[i]);
    }
}

void adjacent_close(adjacent *adjacent) {
    engine_free(adjacent->device, adjacent->addresses[0]);
    engine_free(adjacent->device, adjacent->addresses[1]);
}

CUmemAllocationProp properties_on(int device, unsigned handle_types) {
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = handle_types,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
    };
}

void span_grow(span *span, int device) {
    CHECK(span->mapped < span->reserved);
    const CUmemAllocationProp properties = properties_on(device, span->handle_types);
    const CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const uint64_t at = span->address + span->mapped * span->granule;
    CU(cuMemCreate(&span->memory[span->mapped], span->granule, &properties, 0));
    CU(cuMemMap(at, span->granule, 0, span->memory[span->mapped], 0));
    CU(cuMemSetAccess(at, span->granule, &access, 1));
    span->mapped++;
}

void span_open(span *span, int device, size_t reserved, size_t mapped) {
    span_open_exportable(span, device, 0, reserved, mapped);
}

void span_open_exportable(span *span, int device, unsigned handle_types, size_t reserved, size_t mapped) {
    CHECK(mapped <= reserved && reserved <= SPAN_MAX);
    *span = (struct span){.device = device, .reserved = reserved, .handle_types = handle_types};
    retain_device(device);
    const CUmemAllocationProp properties = properties_on(device, handle_types);
    size_t granule = 0;
    CU(cuMemGetAllocationGranularity(&granule, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    span->granule = granule;
    CU(cuMemAddressReserve(&span->address, reserved * granule, granule, 0, 0));
    while (span->mapped < mapped) span_grow(span, device);
}

void span_close(span *span) {
    for (size_t i = 0; i < span->mapped; i++) {
        CU(cuMemUnmap(span->address + i * span->granule, span->granule));
        CU(cuMemRelease(span->memory[i]));
    }
    CU(cuMemAddressFree(span->address, span->reserved * span->granule));
    release_device(span->device);
}
