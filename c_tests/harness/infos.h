// SPDX-License-Identifier: Apache-2.0
// Infos of objects as values: `CHECK_EQ(transfer_info(transfer).method, KVMEM_METHOD_MEMCPY)`.
#pragma once

#include "framework.h"

#define INFO(type, name, get, object)                                                                \
    static inline type name(const object *of) {                                                      \
        GET(type, info, get, of);                                                                    \
        return info;                                                                                 \
    }
INFO(kvmem_layout_info, layout_info, kvmem_layout_get_info, kvmem_layout)
INFO(kvmem_region_holders, region_holders, kvmem_region_get_holders, kvmem_region)
INFO(kvmem_region_info, region_info, kvmem_region_get_info, kvmem_region)
INFO(kvmem_region_residency, region_residency, kvmem_region_get_residency, kvmem_region)
INFO(kvmem_registration_info, registration_info, kvmem_registration_get_info, kvmem_registration)
INFO(kvmem_share_info, share_info, kvmem_share_get_info, kvmem_share)
INFO(kvmem_transfer_info, transfer_info, kvmem_transfer_get_info, kvmem_transfer)
#undef INFO

/* Whether a GPU can map the memory of another one. */
static inline bool gpu_can_access(int device, int owner) {
    GET(kvmem_cuda_device_info, info, kvmem_cuda_get_device_info, device);
    return (info.can_access >> owner & 1) != 0;
}

/* What was decided about a method: a KVMEM_CHOICE_* value; 0 if it was not compared. */
static inline uint32_t transfer_choice(const kvmem_transfer *transfer, uint32_t method) {
    kvmem_compared_method compared[16];
    GET(size_t, count, kvmem_transfer_get_methods, transfer, compared, sizeof(compared) / sizeof(compared[0]));
    for (size_t i = 0; i < count; i++)
        if (compared[i].method == method) return compared[i].choice;
    return 0;
}

/* The method that a transfer takes, as kvmem_transfer_get_methods returns it. */
static inline kvmem_compared_method transfer_used_method(const kvmem_transfer *transfer) {
    kvmem_compared_method used;
    GET(size_t, count, kvmem_transfer_get_methods, transfer, &used, 1);
    CHECK(count > 0);
    CHECK_EQ(used.choice, KVMEM_CHOICE_USED);
    CHECK_EQ(used.method, transfer_info(transfer).method);
    return used;
}
