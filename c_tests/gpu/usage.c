// SPDX-License-Identifier: Apache-2.0
// Reads /proc/self.
#include "usage.h"

typedef struct pages {
    unsigned long long mapped;
    unsigned long long resident;
} pages;

static pages pages_now(void) {
    FILE *file = fopen("/proc/self/statm", "re");
    CHECK(file != NULL);
    pages pages = {0};
    const int fields = fscanf(file, "%llu %llu", &pages.mapped, &pages.resident);
    fclose(file);
    CHECK_EQ(fields, 2);
    return pages;
}

uint64_t address_space(void) { return pages_now().mapped * 4096; }

uint64_t resident_memory(void) { return pages_now().resident * 4096; }

size_t count_threads(void) { return count_directory_entries("/proc/self/task"); }
