// SPDX-License-Identifier: Apache-2.0
// Allocations, each of which keeps its device's primary context alive, and spans of several mappings.
#include "engine.h"

#include "driver.h"
#include "harness.h"

uint64_t engine_allocate(int device, uint64_t size) {
    CUdeviceptr address = 0;
    retain_device(device);
    enter_device(device);
    CU(cuMemAlloc_v2(&address, size));
    leave_device(device);
    return address;
}

void engine_free(int device, uint64_t address) {
    enter_device(device);
    CU(cuMemFree_v2(address));
    leave_device(device);
    release_device(device);
}

void *engine_allocate_host(int device, uint64_t size) {
    void *address = NULL;
    retain_device(device);
    enter_device(device);
    CU(cuMemHostAlloc(&address, size, CU_MEMHOSTALLOC_PORTABLE));
    leave_device(device);
    return address;
}

void engine_free_host(int device, void *address) {
    enter_device(device);
    CU(cuMemFreeHost(address));
    leave_device(device);
    release_device(device);
}

static CUmemAllocationProp properties_on(int device, unsigned handle_types) {
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
    while (span->mapped < mapped) {
        span_grow(span, device);
    }
}

void span_close(span *span) {
    for (size_t i = 0; i < span->mapped; i++) {
        CU(cuMemUnmap(span->address + i * span->granule, span->granule));
        CU(cuMemRelease(span->memory[i]));
    }
    CU(cuMemAddressFree(span->address, span->reserved * span->granule));
    release_device(span->device);
}
