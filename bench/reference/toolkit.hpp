// SPDX-License-Identifier: Apache-2.0
// Libraries of the CUDA toolkit, which a reference uses where the machine has them.
#pragma once

#include <dlfcn.h>
#include <initializer_list>
#include <stdexcept>
#include <string>

namespace cuda {

// The first of these that is found by its name, or in the folders a toolkit or its wheels are installed to.
// Throws what is missing. Never closed.
void *open_toolkit(std::initializer_list<const char *> names);

template <typename Function> void resolve_in(void *library, const char *symbol, Function &function)
{
    function = reinterpret_cast<Function>(dlsym(library, symbol));
    if (function == nullptr)
        throw std::runtime_error(std::string("the toolkit's library has no ") + symbol);
}

} // namespace cuda
