// SPDX-License-Identifier: Apache-2.0
// Fills and checks with copies from and to the host.
#include "filled.h"

#include "driver.h"

void fill_device(int device, uint64_t address, uint64_t size, unsigned char value) {
    unsigned char *bytes = test_allocate(size);
    memset(bytes, value, size);
    write_device(device, address, bytes, size);
    free(bytes);
}

void check_device(int device, uint64_t address, uint64_t size, unsigned char value) {
    unsigned char *bytes = test_allocate(size);
    memset(bytes, value + 1, size);
    read_device(device, bytes, address, size);
    CHECK_FILLED(bytes, value, size);
    free(bytes);
}
