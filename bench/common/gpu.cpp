// SPDX-License-Identifier: Apache-2.0
// The description of the GPU, or of the stand-in driver.
#include "common/gpu.hpp"

#include "common/kv.hpp"
#include "reference/cuda.hpp"

#include <cstdio>

namespace bench {

std::string gpu_description(int device)
{
    if (cuda::load().stand_in)
        return "none: the stand-in driver, figures mean nothing";
    kvmem_cuda_info driver{};
    kv::call(kvmem_cuda_get_info, &driver);
    kvmem_cuda_device_info gpu{};
    kv::call(kvmem_cuda_get_device_info, device, &gpu);
    const int major = driver.driver_version / 1000;
    const int minor = driver.driver_version % 1000 / 10;
    return std::string(gpu.name) + ", CUDA " + std::to_string(major) + "." + std::to_string(minor);
}

void warn_of_stand_in()
{
    if (cuda::load().stand_in)
        std::printf("*** This is the tests' stand-in for the CUDA driver. THE FIGURES MEAN NOTHING. ***\n");
}

} // namespace bench
