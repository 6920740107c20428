// SPDX-License-Identifier: Apache-2.0
// Libraries of the CUDA toolkit, which some references use if they are installed.
#pragma once

#include <dlfcn.h>
#include <initializer_list>
#include <stdexcept>
#include <string>

namespace cuda {

// Opens the first of these libraries that is found, by name or in the folders of toolkits and Python wheels. It is
// never closed. Throws if none is found.
void *open_toolkit(std::initializer_list<const char *> names);

template <typename Function> void resolve_in(void *library, const char *symbol, Function &function)
{
    function = reinterpret_cast<Function>(dlsym(library, symbol));
    if (function == nullptr)
        throw std::runtime_error(std::string("the toolkit's library has no ") + symbol);
}

} // namespace cuda
