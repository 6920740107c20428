/* SPDX-License-Identifier: Apache-2.0 */
/* A C program that uses kvmem as any engine does: version, a region, its memory. */
#include <kvmem.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REGION_SIZE = 1 << 20 };

static int fail(const char *what, kvmem_error *error) {
    fprintf(stderr, "%s: %s\n", what, kvmem_error_message(error, NULL));
    kvmem_error_destroy(error);
    return EXIT_FAILURE;
}

int main(void) {
    kvmem_error *error = NULL;
    kvmem_region *region = NULL;
    kvmem_region_info info;
    kvmem_system_options options = {.struct_size = sizeof(options)};
    options.size = REGION_SIZE;
    if (kvmem_region_create_system(&options, &region, &error) != KVMEM_STATUS_OK)
        return fail("create", error);
    if (kvmem_region_get_info(region, &info, &error) != KVMEM_STATUS_OK) return fail("info", error);
    if (info.size < REGION_SIZE || info.tier != KVMEM_TIER_SYSTEM) {
        fprintf(stderr, "asked %d bytes of system memory, got %llu of tier %u\n", REGION_SIZE,
                (unsigned long long)info.size, (unsigned)info.tier);
        return EXIT_FAILURE;
    }
    memset((void *)(uintptr_t)info.address, 0x5a, REGION_SIZE);
    printf("C, kvmem %s: %llu bytes written\n", kvmem_version_string(), (unsigned long long)info.size);
    kvmem_region_destroy(region);
    return EXIT_SUCCESS;
}
