/* SPDX-License-Identifier: Apache-2.0 */
/* version MAJOR MINOR PATCH SONAME, all from Cargo.toml: header and library must match. */
#include <kvmem.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

static void expect(const char *what, long found, long wanted) {
    if (found != wanted) {
        fprintf(stderr, "%s is %ld, not %ld\n", what, found, wanted);
        failures++;
    }
}

static void expect_text(const char *what, const char *found, const char *wanted) {
    if (strcmp(found, wanted) != 0) {
        fprintf(stderr, "%s is \"%s\", not \"%s\"\n", what, found, wanted);
        failures++;
    }
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: %s MAJOR MINOR PATCH SONAME\n", argv[0]);
        return 2;
    }
    const long major = strtol(argv[1], NULL, 10);
    const long minor = strtol(argv[2], NULL, 10);
    const long patch = strtol(argv[3], NULL, 10);
    char version[64];
    char soname[64];
    snprintf(soname, sizeof soname, "libkvmem.so.%d", KVMEM_ABI_VERSION);
    snprintf(version, sizeof version, "%ld.%ld.%ld", major, minor, patch);

    expect("KVMEM_VERSION_MAJOR", KVMEM_VERSION_MAJOR, major);
    expect("KVMEM_VERSION_MINOR", KVMEM_VERSION_MINOR, minor);
    expect("KVMEM_VERSION_PATCH", KVMEM_VERSION_PATCH, patch);
    expect_text("kvmem_version_string()", kvmem_version_string(), version);
    expect("kvmem_abi_version()", (long)kvmem_abi_version(), KVMEM_ABI_VERSION);
    expect_text("the SONAME", argv[4], soname);
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
