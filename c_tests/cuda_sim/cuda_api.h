// SPDX-License-Identifier: Apache-2.0
// The driver's functions, by the names that its library exports.
#pragma once

#include "cuda_functions.h"
#include "cuda_types.h"

#pragma GCC visibility push(default)
#define FUNCTION(name, need, manner, parameters) CUresult name parameters;
CUDA_FUNCTIONS(FUNCTION)
#undef FUNCTION
#pragma GCC visibility pop
