// SPDX-License-Identifier: Apache-2.0
// A driver that lacks a function which must be there: too old, and the function is named. The process lives,
// and what needs no GPU works.
#include "harness.h"

TEST(it_is_too_old_and_says_what_it_lacks) {
    kvmem_cuda_info info;
    kvmem_region *region = NULL;
    kvmem_device_options options = OPTIONS(kvmem_device_options, it.size = MIB);
    const char *said = "the CUDA driver is too old: it has no cuMemRetainAllocationHandle";
    for (int again = 0; again < 2; again++) {
        EXPECT_MESSAGE(KVMEM_STATUS_UNAVAILABLE_CUDA, said, kvmem_cuda_get_info(&info, ERR));
        EXPECT_MESSAGE(KVMEM_STATUS_UNAVAILABLE_CUDA, said,
                       kvmem_region_create_device(&options, &region, ERR));
    }
}

TEST(what_needs_no_gpu_works) {
    OWN(kvmem_region, region, kvmem_region_create_system, REF(OPTIONS(kvmem_system_options, it.size = MIB)));
}
TEST_MAIN_ONCE
