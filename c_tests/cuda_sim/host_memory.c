// SPDX-License-Identifier: Apache-2.0
// Page-locked host memory: allocated by the driver, or allocated by the program and registered.
#include "call.h"
#include "contexts.h"
#include "devices.h"
#include "queue.h"
#include "spans.h"

#include <sys/mman.h>

#define PAGE UINT64_C(4096)
#define ALLOCATION_FLAGS                                                                             \
    (unsigned)(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED)
#define REGISTRATION_FLAGS                                                                           \
    (unsigned)(CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |                          \
               CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY)

CUresult cuMemHostAlloc(void **address, size_t size, unsigned flags) {
    DRIVER_CALL(cuMemHostAlloc);
    INVALID_IF(address == NULL || (flags & ~ALLOCATION_FLAGS) != 0);
    if (size == 0) {
        *address = NULL;
        return CUDA_SUCCESS;
    }
    void *start = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    RETURN_IF(start == MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
    span_add(SPAN_HOST_ALLOCATION, (uintptr_t)start, size, NULL, context_current());
    *address = start;
    return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void *address) {
    DRIVER_CALL(cuMemFreeHost);
    if (address == NULL) return RELEASED(CUDA_SUCCESS);
    queue_drain(NULL);
    span *freed = span_starting(SPAN_HOST_ALLOCATION, (uintptr_t)address);
    INVALID_IF(freed == NULL);
    span_remove(freed);
    return RELEASED(CUDA_SUCCESS);
}

/* Two registrations may share a page, but no byte. */
static CUresult check_free(CUdeviceptr start, size_t size) {
    const span *known = span_within(start, size);
    RETURN_IF(known == NULL, CUDA_SUCCESS);
    return known->kind == SPAN_REGISTRATION ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
                                            : CUDA_ERROR_INVALID_VALUE;
}

/* Populates the pages, as locking does. Returns false if some are not mapped or not writable. */
static bool populate(CUdeviceptr start, size_t size, bool read_only) {
    const CUdeviceptr first = start / PAGE * PAGE;
    const int how = read_only ? MADV_POPULATE_READ : MADV_POPULATE_WRITE;
    return madvise((void *)(uintptr_t)first, (size_t)(start + size - first), how) == 0;
}

CUresult cuMemHostRegister_v2(void *address, size_t size, unsigned flags) {
    DRIVER_CALL(cuMemHostRegister_v2);
    const CUdeviceptr start = (uintptr_t)address;
    INVALID_IF(address == NULL || size == 0 || start + size < start || (flags & ~REGISTRATION_FLAGS) != 0);
    const bool read_only = (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;
    RETURN_IF(read_only && !attribute_is_set(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED),
              CUDA_ERROR_NOT_SUPPORTED);
    TRY(check_free(start, size));
    INVALID_IF(!populate(start, size, read_only));
    span_add(SPAN_REGISTRATION, start, size, NULL, context_current());
    return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void *address) {
    DRIVER_CALL(cuMemHostUnregister);
    INVALID_IF(address == NULL);
    queue_drain(NULL);
    span *known = span_at((uintptr_t)address);
    RETURN_IF(known == NULL, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    INVALID_IF(known->kind != SPAN_REGISTRATION || known->start != (uintptr_t)address);
    span_remove(known);
    return RELEASED(CUDA_SUCCESS);
}

/* Devices and the host use the same addresses. */
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *host, unsigned flags) {
    DRIVER_CALL(cuMemHostGetDevicePointer_v2);
    INVALID_IF(device == NULL);
    const span *known = span_at((uintptr_t)host);
    const bool is_reachable = flags == 0 && known != NULL && span_is_host(known);
    *device = is_reachable ? (uintptr_t)host : 0;
    return is_reachable ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
