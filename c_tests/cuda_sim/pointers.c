// SPDX-License-Identifier: Apache-2.0
// Attributes of addresses, and the ranges that contain them.
#include "call.h"
#include "contexts.h"
#include "devices.h"
#include "reach.h"
#include "spans.h"

#include <string.h>

/* The ordinal that the driver returns for memory that it does not know. */
#define UNKNOWN_ORDINAL (-2)

/* The driver treats addresses that the device may not access as unmapped. */
CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address) {
    DRIVER_CALL(cuMemGetAddressRange_v2);
    const span *known = span_at(address);
    RETURN_IF(known == NULL || access_of(known, context_current()->device) == CU_MEM_ACCESS_FLAGS_PROT_NONE,
              CUDA_ERROR_NOT_FOUND);
    if (base != NULL) *base = known->start;
    if (size != NULL) *size = known->size;
    return CUDA_SUCCESS;
}

/* The value of an attribute: an int, also for a flag, or 64 bits. */
typedef struct attribute_value {
    uint64_t value;
    size_t size;
} attribute_value;

static attribute_value attribute_u64(uint64_t value) {
    return (attribute_value){value, sizeof(value)};
}

static attribute_value attribute_int(int value) {
    return (attribute_value){(unsigned)value, sizeof(value)};
}

/* Returns the whole reservation for a mapping, and the range itself for other memory. */
static void enclosing_range(const span *known, CUdeviceptr *start, size_t *size) {
    const reservation *around = reservation_containing(known->start, known->size);
    const bool is_mapping = known->kind == SPAN_MAPPING;
    *start = is_mapping ? around->start : known->start;
    *size = is_mapping ? around->size : known->size;
}

static bool is_host_accessible(const span *known) {
    return known->memory == NULL || known->is_managed || known->host_access != CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

static bool is_plain(const span *known) { return known->kind == SPAN_ALLOCATION && !known->is_managed; }

static bool is_rdma_capable(const span *known) {
    return is_plain(known) || (known->memory != NULL && known->memory->prop.allocFlags.gpuDirectRDMACapable);
}

/* Some systems give page-locked memory of the program another address on devices. */
static uint64_t device_address(const span *known, CUdeviceptr address) {
    const bool is_equal = known->kind != SPAN_REGISTRATION ||
                          attribute_is_set(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
    return is_equal ? address : address + 4096;
}

/* Returns false if this memory does not have the attribute. */
static bool describe(const span *known, CUpointer_attribute attribute, CUdeviceptr address,
                     attribute_value *found) {
    const context *current = context_current();
    const CUmemAccess_flags access = access_of(known, current ? current->device : span_device(known));
    CUdeviceptr start = 0;
    size_t size = 0;
    enclosing_range(known, &start, &size);
    bool has_it = true;
    switch (attribute) {
#define ATTRIBUTE(name, kind, value)                                                                 \
    case CU_POINTER_ATTRIBUTE_##name:                                                                \
        *found = attribute_##kind(value);                                                               \
        break;
        ATTRIBUTE(CONTEXT, u64, (uintptr_t)known->context)
        ATTRIBUTE(MEMORY_TYPE, int, span_is_host(known) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE)
        ATTRIBUTE(SYNC_MEMOPS, int, false)
        ATTRIBUTE(IS_MANAGED, int, known->is_managed)
        ATTRIBUTE(BUFFER_ID, u64, known->buffer)
        ATTRIBUTE(DEVICE_ORDINAL, int, span_device(known))
        ATTRIBUTE(IS_LEGACY_CUDA_IPC_CAPABLE, int, is_plain(known))
        ATTRIBUTE(RANGE_START_ADDR, u64, start)
        ATTRIBUTE(RANGE_SIZE, u64, size)
        ATTRIBUTE(MAPPED, int, true)
        ATTRIBUTE(ALLOWED_HANDLE_TYPES, u64, known->memory ? known->memory->prop.requestedHandleTypes : 0)
        ATTRIBUTE(IS_GPU_DIRECT_RDMA_CAPABLE, int, is_rdma_capable(known))
        ATTRIBUTE(ACCESS_FLAGS, int, access)
#undef ATTRIBUTE
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *found = attribute_u64(device_address(known, address));
        has_it = access != CU_MEM_ACCESS_FLAGS_PROT_NONE;
        break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *found = attribute_u64(address);
        has_it = is_host_accessible(known);
        break;
    default:
        has_it = false;
    }
    return has_it;
}

/* Returns the value that cuPointerGetAttributes returns if cuPointerGetAttribute fails; false if there is no
   such attribute. */
static bool describe_unknown(CUpointer_attribute attribute, attribute_value *found) {
    const span nothing = {.kind = SPAN_REGISTRATION};
    if (!describe(&nothing, attribute, 0, found)) return false;
    const size_t size = found->size;
    const bool is_ordinal = attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    *found = (attribute_value){is_ordinal ? attribute_int(UNKNOWN_ORDINAL).value : 0, size};
    return true;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address) {
    DRIVER_CALL(cuPointerGetAttribute);
    const span *known = span_at(address);
    attribute_value found;
    if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER && known != NULL && context_current() == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT; /* the value depends on the current context */
    }
    INVALID_IF(data == NULL || known == NULL || !describe(known, attribute, address, &found));
    memcpy(data, &found.value, found.size);
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **data,
                                CUdeviceptr address) {
    DRIVER_CALL(cuPointerGetAttributes);
    INVALID_IF(count == 0 || attributes == NULL || data == NULL);
    const span *known = span_at(address);
    for (unsigned i = 0; i < count; i++) {
        attribute_value found;
        const bool is_described = known != NULL && describe(known, attributes[i], address, &found);
        INVALID_IF(!is_described && !describe_unknown(attributes[i], &found));
        memcpy(data[i], &found.value, found.size);
    }
    return CUDA_SUCCESS;
}
