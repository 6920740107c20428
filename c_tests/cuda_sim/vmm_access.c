// SPDX-License-Identifier: Apache-2.0
// Access to mappings: of each device and, for host memory, of the host.
#include "call.h"
#include "devices.h"
#include "spans.h"
#include "vmm.h"

#include <sys/mman.h>

/* Whether the range consists of whole, adjacent mappings. */
static bool is_filled(CUdeviceptr start, size_t size) {
    const CUdeviceptr end = start + size;
    while (start < end) {
        const span *known = span_starting(SPAN_MAPPING, start);
        if (known == NULL || known->size > end - start) return false;
        start += known->size;
    }
    return true;
}

static bool is_host(const CUmemLocation *location) {
    return location->type == CU_MEM_LOCATION_TYPE_HOST || location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
}

static CUresult check_access(const span *known, const CUmemAccessDesc *access) {
    const CUmemAccess_flags flags = access->flags;
    INVALID_IF(flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
               flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (is_host(&access->location)) return span_is_host(known) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    INVALID_IF(access->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !device_exists(access->location.id));
    const bool reaches = device_reaches(access->location.id, known->memory->owner);
    return reaches ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static void set_host_access(span *known, CUmemAccess_flags flags) {
    const int protection = flags == CU_MEM_ACCESS_FLAGS_PROT_NONE   ? PROT_NONE
                           : flags == CU_MEM_ACCESS_FLAGS_PROT_READ ? PROT_READ : PROT_READ | PROT_WRITE;
    mprotect((void *)(uintptr_t)known->start, known->size, protection);
    known->host_access = flags;
}

static void set_access(span *known, const CUmemAccessDesc *access) {
    if (is_host(&access->location)) set_host_access(known, access->flags);
    else known->device_access[access->location.id] = access->flags;
}

typedef struct mappings {
    CUdeviceptr start;
    size_t size;
} mappings;

static bool is_among(const mappings *these, const span *known) {
    return known->kind == SPAN_MAPPING && span_overlaps(known, these->start, these->size);
}

static CUresult check_all(const mappings *these, const CUmemAccessDesc *access) {
    EACH(span, known, sim.spans) {
        TRY(is_among(these, known) ? check_access(known, access) : CUDA_SUCCESS);
    }
    return CUDA_SUCCESS;
}

static void set_all(const mappings *these, const CUmemAccessDesc *access) {
    EACH(span, known, sim.spans) {
        if (is_among(these, known)) set_access(known, access);
    }
}

/* Sets access of all mappings, or fails without effect. */
CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *accesses, size_t count) {
    DRIVER_CALL(cuMemSetAccess);
    INVALID_IF(size == 0 || accesses == NULL || count == 0 || !is_filled(address, size));
    const mappings these = {address, size};
    for (size_t i = 0; i < count; i++) TRY(check_all(&these, &accesses[i]));
    for (size_t i = 0; i < count; i++) set_all(&these, &accesses[i]);
    return CUDA_SUCCESS;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address) {
    DRIVER_CALL(cuMemGetAccess);
    const span *known = span_at(address);
    INVALID_IF(flags == NULL || location == NULL || known == NULL);
    if (known->kind != SPAN_MAPPING) {
        *flags = 0; /* also for memory that every device may access */
        return CUDA_SUCCESS;
    }
    if (is_host(location)) {
        *flags = known->host_access;
        return CUDA_SUCCESS;
    }
    INVALID_IF(location->type != CU_MEM_LOCATION_TYPE_DEVICE);
    RETURN_IF(!device_exists(location->id), CUDA_ERROR_INVALID_DEVICE);
    *flags = known->device_access[location->id];
    return CUDA_SUCCESS;
}
