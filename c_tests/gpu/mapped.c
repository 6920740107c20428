// SPDX-License-Identifier: Apache-2.0
// Reserves addresses, maps the memory, and sets access.
#include "mapped.h"

mapped map_memory(kvmem_vmm_memory *memory, int device, uint64_t size, uint32_t access) {
    mapped made = {0};
    GET(kvmem_vmm_range *, range, kvmem_vmm_range_create, size, 0, NULL);
    kvmem_vmm_span span;
    EXPECT_OK(kvmem_vmm_mapping_create(range, 0, memory, &span, &made.mapping, ERR));
    kvmem_vmm_memory_destroy(memory);
    kvmem_vmm_range_destroy(range);
    EXPECT_OK(kvmem_vmm_mapping_set_access(made.mapping, device, access, ERR));
    CHECK_EQ(span.size, size);
    made.address = span.address;
    return made;
}

void unmap_memory(const mapped *mapped) { kvmem_vmm_mapping_destroy(mapped->mapping); }
