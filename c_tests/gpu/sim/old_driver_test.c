// SPDX-License-Identifier: Apache-2.0
// A driver without a required function is too old, and the error contains the function. The process
// continues, and calls that need no GPU work.
#include "harness.h"

TEST(the_error_contains_the_missing_function) {
    kvmem_cuda_info info;
    kvmem_region *region = NULL;
    kvmem_device_options options = OPTIONS(kvmem_device_options, it.size = MIB);
    const char *message = "the CUDA driver is too old: it has no cuMemRetainAllocationHandle";
    for (int again = 0; again < 2; again++) {
        EXPECT_MESSAGE(KVMEM_STATUS_UNAVAILABLE_CUDA, message, kvmem_cuda_get_info(&info, ERR));
        EXPECT_MESSAGE(KVMEM_STATUS_UNAVAILABLE_CUDA, message,
                       kvmem_region_create_device(&options, &region, ERR));
    }
}

TEST(calls_that_need_no_gpu_work) {
    OWN(kvmem_region, region, kvmem_region_create_system, REF(OPTIONS(kvmem_system_options, it.size = MIB)));
}
TEST_MAIN_ONCE
