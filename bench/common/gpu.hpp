// SPDX-License-Identifier: Apache-2.0
// The GPU that a bench runs on.
#pragma once

#include <string>

namespace bench {

// Returns the GPU's name and the driver's CUDA version, for the parameter "gpu" of a row.
std::string gpu_description(int device);

// Prints a warning if the driver is the tests' stand-in on host memory.
void warn_of_stand_in();

} // namespace bench
