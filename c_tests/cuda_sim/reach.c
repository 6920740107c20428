// SPDX-License-Identifier: Apache-2.0
// Resolves addresses to bytes. Adjacent memory is one range only if it consists of VMM mappings.
#include "reach.h"

#include "call.h"
#include "cuda_sim.h"
#include "spans.h"

#include <string.h>

CUmemAccess_flags access_of(const span *known, CUdevice device) {
    return known->kind == SPAN_MAPPING ? known->device_access[device] : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

static size_t bytes_to_end(const span *known, CUdeviceptr address) {
    return known->size - (size_t)(address - known->start);
}

/* A range may extend over adjacent mappings, but not over adjacent memory of other kinds. */
static CUresult check_known(range checked, CUmemAccess_flags needed, CUdevice device) {
    const span *first = span_at(checked.start);
    if (first->kind != SPAN_MAPPING)
        return checked.size <= bytes_to_end(first, checked.start) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    while (true) {
        const span *known = span_at(checked.start);
        if (known == NULL || known->kind != SPAN_MAPPING || (access_of(known, device) & needed) != needed)
            return CUDA_ERROR_INVALID_VALUE;
        const size_t left = bytes_to_end(known, checked.start);
        RETURN_IF(checked.size <= left, CUDA_SUCCESS);
        checked.start += left;
        checked.size -= left;
    }
}

CUresult check_reach(range checked, CUmemAccess_flags needed, must_be must_be, CUdevice device) {
    RETURN_IF(checked.size == 0, CUDA_SUCCESS);
    if (span_at(checked.start) != NULL) return check_known(checked, needed, device);
    return must_be == ANY && checked.start != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Returns the bytes that an address is mapped to, and limits `size` to those that are contiguous. An address
 * that the driver does not know is host memory. If nothing is mapped there, the process crashes here, as in
 * the real driver. */
static unsigned char *bytes_at(CUdeviceptr address, size_t *size) {
    const span *known = span_at(address);
    if (known == NULL || known->memory == NULL) return (unsigned char *)(uintptr_t)address;
    const size_t left = bytes_to_end(known, address);
    *size = *size < left ? *size : left;
    return known->memory->bytes + (address - known->start);
}

void reach_copy(CUdeviceptr destination, CUdeviceptr source, size_t size) {
    while (size > 0) {
        size_t part = size;
        unsigned char *to = bytes_at(destination, &part);
        const unsigned char *from = bytes_at(source, &part);
        memmove(to, from, part);
        destination += part;
        source += part;
        size -= part;
    }
}

void reach_fill(CUdeviceptr destination, unsigned char value, size_t size) {
    while (size > 0) {
        size_t part = size;
        unsigned char *to = bytes_at(destination, &part);
        memset(to, value, part);
        destination += part;
        size -= part;
    }
}

void sim_copy_bytes(uint64_t destination, uint64_t source, size_t size) {
    LOCKED;
    reach_copy(destination, source, size);
}
