// SPDX-License-Identifier: Apache-2.0
// Without a driver, the error contains the name of the library. Skipped on a machine with a driver.
#include "harness.h"

#include <dlfcn.h>

TEST(a_missing_driver_is_named) {
    if (dlopen("libcuda.so.1", RTLD_NOW) != NULL)
        SKIP("a machine without a CUDA driver: this one has a driver");
    kvmem_cuda_info info;
    EXPECT_MESSAGE(KVMEM_STATUS_UNAVAILABLE_CUDA,
                   "the CUDA driver is missing: the loader does not find libcuda.so.1",
                   kvmem_cuda_get_info(&info, ERR));
    const char *advice = "without a GPU, allocate memory of the tier system";
    const kvmem_device_options device = OPTIONS(kvmem_device_options, it.size = 4096);
    REFUSE(KVMEM_STATUS_UNAVAILABLE_CUDA, advice, kvmem_region_create_device, &device);
    const kvmem_elastic_options elastic = OPTIONS(kvmem_elastic_options, it.size = 4096);
    REFUSE(KVMEM_STATUS_UNAVAILABLE_CUDA, advice, kvmem_region_create_elastic, &elastic);
    const kvmem_pinned_options pinned = OPTIONS(kvmem_pinned_options, it.size = 4096);
    REFUSE(KVMEM_STATUS_UNAVAILABLE_CUDA, advice, kvmem_region_create_pinned, &pinned);
}
TEST_MAIN_ONCE
