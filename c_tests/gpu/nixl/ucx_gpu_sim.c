// SPDX-License-Identifier: Apache-2.0
// Preloaded: tells NIXL's UCX plugin that UCX has found memory of a GPU where it has found memory of the stand-in driver, which
// is host memory to UCX. The plugin asks for nothing else, and only where it was told to register GPU memory. UCX itself
// goes on to move it as what it is.
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
