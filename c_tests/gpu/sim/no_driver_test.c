// SPDX-License-Identifier: Apache-2.0
// No driver at all: said in words that tell what to look for. Where the machine has one of its own there is none to miss.
#include "harness.h"

#include <dlfcn.h>
#include <stdio.h>

static void a_missing_driver_is_named(void) {
    if (dlopen("libcuda.so.1", RTLD_NOW) != NULL) {
        printf("  this machine has a driver: that there is none is not tried\n");
        return;
    }
    kvmem_cuda_info info;
    EXPECT_MESSAGE(KVMEM_STATUS_UNAVAILABLE_CUDA,
                   "the CUDA driver is missing: the loader does not find libcuda.so.1",
                   kvmem_cuda_get_info(&info, ERR));
}

static const test_case cases[] = {
    CASE(a_missing_driver_is_named),
};
TEST_MAIN
