// SPDX-License-Identifier: Apache-2.0
// Opens the CUDA driver and resolves the functions that the references call.
#include "reference/cuda.hpp"

#include <dlfcn.h>
#include <stdexcept>

namespace cuda {
namespace {

template <typename Function> void find(void *handle, const char *symbol, Function &function)
{
    function = reinterpret_cast<Function>(dlsym(handle, symbol));
}

template <typename Function> void resolve(void *handle, const char *symbol, Function &function)
{
    find(handle, symbol, function);
    if (function == nullptr)
        throw std::runtime_error(std::string("the CUDA driver has no ") + symbol);
}

library open_library()
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr)
        throw std::runtime_error(std::string("no CUDA driver: ") + dlerror());
    library functions{};
#define CUDA_RESOLVE(symbol, member, ...) resolve(handle, #symbol, functions.member);
    CUDA_FUNCTIONS(CUDA_RESOLVE)
#undef CUDA_RESOLVE
#define CUDA_FIND(symbol, member, ...) find(handle, #symbol, functions.member);
    CUDA_OPTIONAL_FUNCTIONS(CUDA_FIND)
#undef CUDA_FIND
    functions.stand_in = dlsym(handle, "sim_live") != nullptr;
    if (const result code = functions.init(0); code != 0)
        throw std::runtime_error("cuInit failed with " + std::to_string(code));
    return functions;
}

} // namespace

const library &load()
{
    static const library functions = open_library();
    return functions;
}

void check(result code, const char *call)
{
    if (code == 0)
        return;
    const char *name = nullptr;
    load().get_error_name(code, &name);
    throw std::runtime_error(std::string(call) + ": " + (name != nullptr ? name : std::to_string(code)));
}

void reach(int other)
{
    if (load().enable_peer_access == nullptr)
        return;
    context theirs = nullptr;
    check(load().primary_context_retain(&theirs, other), "cuDevicePrimaryCtxRetain");
    const result code = load().enable_peer_access(theirs, 0);
    if (code != peer_access_already_enabled)
        check(code, "cuCtxEnablePeerAccess");
}

current_device::current_device(int device) : device_(device)
{
    context retained = nullptr;
    check(load().primary_context_retain(&retained, device), "cuDevicePrimaryCtxRetain");
    check(load().context_push(retained), "cuCtxPushCurrent");
}

current_device::~current_device()
{
    context popped = nullptr;
    load().context_pop(&popped);
    load().primary_context_release(device_);
}

} // namespace cuda
