// SPDX-License-Identifier: Apache-2.0
// A preloaded library for tests of NIXL with the stand-in driver. UCX detects memory of the stand-in as host
// memory. When NIXL's UCX plugin registers GPU memory, it queries only the memory type; this library returns
// GPU memory. UCX still moves the memory as host memory.
#include <stddef.h>
#include <stdint.h>

enum { OK = 0, MEMORY_TYPE = 1 << 2, CUDA = 1 };

/* ucp_mem_attr_t */
typedef struct memory_attributes {
    uint64_t wanted;
    void *address;
    size_t length;
    int memory_type;
} memory_attributes;

__attribute__((visibility("default"))) int ucp_mem_query(const void *memory, memory_attributes *attributes);

int ucp_mem_query(const void *memory, memory_attributes *attributes) {
    (void)memory;
    if (attributes->wanted & MEMORY_TYPE) attributes->memory_type = CUDA;
    return OK;
}
