// SPDX-License-Identifier: Apache-2.0
// The GPU that a bench runs on.
#pragma once

#include <string>

namespace bench {

// Its name and the driver's CUDA version, as rows on a GPU carry them.
std::string gpu_description(int device);

// Says loudly where the driver is the tests' stand-in on host memory.
void warn_of_stand_in();

} // namespace bench
