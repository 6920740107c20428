// SPDX-License-Identifier: Apache-2.0
// What an address is: the range around it, and its attributes.
#include "call.h"
#include "contexts.h"
#include "reach.h"
#include "spans.h"

#include <string.h>

/* What the driver answers for the ordinal of memory that it does not know. */
#define UNKNOWN_ORDINAL (-2)

/* Addresses that the device may not reach are as good as unmapped. */
CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address) {
    DRIVER_CALL(cuMemGetAddressRange_v2);
    const span *known = span_at(address);
    RETURN_IF(known == NULL || access_of(known, context_current()->device) == CU_MEM_ACCESS_FLAGS_PROT_NONE,
              CUDA_ERROR_NOT_FOUND);
    if (base != NULL) *base = known->start;
    if (size != NULL) *size = known->size;
    return CUDA_SUCCESS;
}

/* A value of an attribute: an int, also for a flag, or 64 bits. */
typedef struct answer {
    uint64_t value;
    size_t size;
} answer;

static answer answer_address(uint64_t value) {
    return (answer){value, sizeof(value)};
}

static answer answer_int(int value) {
    return (answer){(unsigned)value, sizeof(value)};
}

/* The whole reservation around a mapping, and the range itself of all else. */
static void enclosing_range(const span *known, CUdeviceptr *start, size_t *size) {
    const reservation *around = reservation_around(known->start, known->size);
    const bool is_mapping = known->kind == SPAN_MAPPING;
    *start = is_mapping ? around->start : known->start;
    *size = is_mapping ? around->size : known->size;
}

static bool is_touchable(const span *known) {
    return known->memory == NULL || known->is_managed || known->host_access != CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

static bool is_plain(const span *known) { return known->kind == SPAN_ALLOCATION && !known->is_managed; }

static bool is_rdma_capable(const span *known) {
    return is_plain(known) || (known->memory != NULL && known->memory->prop.allocFlags.gpuDirectRDMACapable);
}

/* False when this memory has no such attribute. */
static bool describe(const span *known, CUpointer_attribute attribute, CUdeviceptr address, answer *given) {
    const context *current = context_current();
    const CUmemAccess_flags access = access_of(known, current ? current->device : span_device(known));
    CUdeviceptr start = 0;
    size_t size = 0;
    enclosing_range(known, &start, &size);
    bool has_it = true;
    switch (attribute) {
#define ATTRIBUTE(name, kind, value)                                                                 \
    case CU_POINTER_ATTRIBUTE_##name:                                                                \
        *given = answer_##kind(value);                                                               \
        break;
        ATTRIBUTE(CONTEXT, address, (uintptr_t)known->context)
        ATTRIBUTE(MEMORY_TYPE, int, span_is_host(known) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE)
        ATTRIBUTE(SYNC_MEMOPS, int, false)
        ATTRIBUTE(IS_MANAGED, int, known->is_managed)
        ATTRIBUTE(BUFFER_ID, address, known->buffer)
        ATTRIBUTE(DEVICE_ORDINAL, int, span_device(known))
        ATTRIBUTE(IS_LEGACY_CUDA_IPC_CAPABLE, int, is_plain(known))
        ATTRIBUTE(RANGE_START_ADDR, address, start)
        ATTRIBUTE(RANGE_SIZE, address, size)
        ATTRIBUTE(MAPPED, int, true)
        ATTRIBUTE(ALLOWED_HANDLE_TYPES, address, known->memory ? known->memory->prop.requestedHandleTypes : 0)
        ATTRIBUTE(IS_GPU_DIRECT_RDMA_CAPABLE, int, is_rdma_capable(known))
        ATTRIBUTE(ACCESS_FLAGS, int, access)
#undef ATTRIBUTE
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *given = answer_address(address);
        has_it = access != CU_MEM_ACCESS_FLAGS_PROT_NONE;
        break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *given = answer_address(address);
        has_it = is_touchable(known);
        break;
    default:
        has_it = false;
    }
    return has_it;
}

/* What the plural function answers where the singular one fails; false when there is no such attribute. */
static bool describe_unknown(CUpointer_attribute attribute, answer *given) {
    const span nothing = {.kind = SPAN_REGISTRATION};
    if (!describe(&nothing, attribute, 0, given)) return false;
    const size_t size = given->size;
    const bool is_ordinal = attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    *given = (answer){is_ordinal ? answer_int(UNKNOWN_ORDINAL).value : 0, size};
    return true;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address) {
    DRIVER_CALL(cuPointerGetAttribute);
    const span *known = span_at(address);
    answer given;
    if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER && known != NULL && context_current() == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT; /* it is of the current context */
    }
    INVALID_IF(data == NULL || known == NULL || !describe(known, attribute, address, &given));
    memcpy(data, &given.value, given.size);
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **data,
                                CUdeviceptr address) {
    DRIVER_CALL(cuPointerGetAttributes);
    INVALID_IF(count == 0 || attributes == NULL || data == NULL);
    const span *known = span_at(address);
    for (unsigned i = 0; i < count; i++) {
        answer given;
        const bool is_described = known != NULL && describe(known, attributes[i], address, &given);
        INVALID_IF(!is_described && !describe_unknown(attributes[i], &given));
        memcpy(data[i], &given.value, given.size);
    }
    return CUDA_SUCCESS;
}
