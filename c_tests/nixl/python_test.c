// SPDX-License-Identifier: Apache-2.0
// The cases of python_cases.c in host memory. CTest runs them over shared memory and over TCP.
#include "python_cases.h"

static kvmem_status create(uint64_t size, kvmem_region **region, kvmem_error **error) {
    return kvmem_region_create_system(REF(OPTIONS(kvmem_system_options, it.size = size)), region, error);
}

static void copy_to(uint64_t to, const void *from, size_t size) { memcpy((void *)(uintptr_t)to, from, size); }

static void copy_from(void *to, uint64_t from, size_t size) { memcpy(to, (const void *)(uintptr_t)from,
                                                                     size); }

const python_memory python_memory_of_both = {
    .name = "DRAM", .type = KVMEM_MEMORY_DRAM, .create = create, .write = copy_to, .read = copy_from, .package = "numpy"};

REQUIRES(python_lacks_client)
