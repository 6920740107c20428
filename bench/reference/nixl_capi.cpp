// SPDX-License-Identifier: Apache-2.0
// Opens NIXL's C library and resolves the functions that the reference calls.
#include "reference/nixl_capi.hpp"

#include <cstdlib>
#include <dlfcn.h>
#include <stdexcept>
#include <string>

namespace nixl_capi {
namespace {

template <typename Function> void resolve(void *handle, const char *name, Function &function)
{
    function = reinterpret_cast<Function>(dlsym(handle, name));
    if (function == nullptr)
        throw std::runtime_error(std::string("the NIXL library has no ") + name);
}

library open_library()
{
    const char *path = std::getenv("KVMEM_NIXL_LIBRARY");
    void *handle = dlopen(path != nullptr ? path : "libnixl_capi.so", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr)
        throw std::runtime_error(std::string("no NIXL library (set KVMEM_NIXL_LIBRARY): ") + dlerror());
    library functions{};
#define NIXL_CAPI_RESOLVE(name, ...) resolve(handle, "nixl_capi_" #name, functions.name);
    NIXL_CAPI_FUNCTIONS(NIXL_CAPI_RESOLVE)
#undef NIXL_CAPI_RESOLVE
    return functions;
}

} // namespace

const library &load()
{
    static const library functions = open_library();
    return functions;
}

} // namespace nixl_capi
