// SPDX-License-Identifier: Apache-2.0
// Searches the loaded libraries for the segment that contains a function of kvmem.
#include "library_code.h"

#include "framework.h"

#include <dlfcn.h>
#include <link.h>

typedef struct search {
    uint64_t function;
    library_code found;
} search;

static int find_segment(struct dl_phdr_info *object, size_t size, void *context) {
    (void)size;
    search *search = context;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        const uint64_t start = object->dlpi_addr + part->p_vaddr;
        const library_code segment = {start, start + part->p_memsz};
        if (part->p_type != PT_LOAD || !library_code_contains(&segment, search->function)) continue;
        search->found = segment;
        return 1;
    }
    return 0;
}

library_code library_code_find(void) {
    search search = {.function = (uintptr_t)dlsym(RTLD_DEFAULT, "kvmem_abi_version")};
    CHECK(search.function != 0);
    CHECK_EQ(dl_iterate_phdr(find_segment, &search), 1);
    return search.found;
}
