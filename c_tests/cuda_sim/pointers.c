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
    if (known == NULL || access_of(known, context_current()->device) == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
        return CUDA_ERROR_NOT_FOUND;
    }
    if (base != NULL) {
        *base = known->start;
    }
    if (size != NULL) {
        *size = known->size;
    }
    return CUDA_SUCCESS;
}

typedef struct answer {
    unsigned char bytes[8];
    size_t size;
} answer;

static answer answer_of(const void *value, size_t size) {
    answer given = {.size = size};
    memcpy(given.bytes, value, size);
    return given;
}

static answer answer_address(uint64_t value) {
    return answer_of(&value, sizeof(value));
}

static answer answer_int(int value) {
    return answer_of(&value, sizeof(value));
}

/* A flag is as wide as an int. */
static answer answer_flag(bool value) {
    return answer_int(value);
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

static bool is_plain(const span *known) {
    return known->kind == SPAN_ALLOCATION && !known->is_managed;
}

/* False when this memory has no such attribute. */
static bool describe(const span *known, CUpointer_attribute attribute, CUdeviceptr address, answer *given) {
    const context *current = context_current();
    const CUmemAccess_flags access = access_of(known, current ? current->device : span_device(known));
    CUdeviceptr start = 0;
    size_t size = 0;
    enclosing_range(known, &start, &size);
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *given = answer_address((uintptr_t)known->context);
        return true;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *given = answer_int(span_is_host(known) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *given = answer_address(address);
        return access != CU_MEM_ACCESS_FLAGS_PROT_NONE;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *given = answer_address(address);
        return is_touchable(known);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *given = answer_flag(false);
        return true;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *given = answer_flag(known->is_managed);
        return true;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *given = answer_address(known->buffer);
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *given = answer_int(span_device(known));
        return true;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *given = answer_flag(is_plain(known));
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *given = answer_address(start);
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *given = answer_address(size);
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *given = answer_flag(true);
        return true;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *given = answer_address(known->memory ? known->memory->prop.requestedHandleTypes : 0);
        return true;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *given = answer_flag(is_plain(known) ||
                             (known->memory && known->memory->prop.allocFlags.gpuDirectRDMACapable));
        return true;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *given = answer_int(access);
        return true;
    }
    return false;
}

/* What the plural function answers where the singular one fails; false when there is no such attribute. */
static bool describe_unknown(CUpointer_attribute attribute, answer *given) {
    const span nothing = {.kind = SPAN_REGISTRATION};
    if (!describe(&nothing, attribute, 0, given)) {
        return false;
    }
    const size_t size = given->size;
    const bool is_ordinal = attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    *given = is_ordinal ? answer_int(UNKNOWN_ORDINAL) : answer_address(0);
    given->size = size;
    return true;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address) {
    DRIVER_CALL(cuPointerGetAttribute);
    const span *known = span_at(address);
    answer given;
    if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER && known != NULL && context_current() == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT; /* it is of the current context */
    }
    if (data == NULL || known == NULL || !describe(known, attribute, address, &given)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(data, given.bytes, given.size);
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **data,
                                CUdeviceptr address) {
    DRIVER_CALL(cuPointerGetAttributes);
    RETURN_IF(count == 0 || attributes == NULL || data == NULL, CUDA_ERROR_INVALID_VALUE);
    const span *known = span_at(address);
    for (unsigned i = 0; i < count; i++) {
        answer given;
        RETURN_IF((known == NULL || !describe(known, attributes[i], address, &given)) &&
                  !describe_unknown(attributes[i], &given), CUDA_ERROR_INVALID_VALUE);
        memcpy(data[i], given.bytes, given.size);
    }
    return CUDA_SUCCESS;
}
