// SPDX-License-Identifier: Apache-2.0
// The few functions of the CUDA driver that the references call, found at run time.
#pragma once

#include <cstddef>
#include <string>

namespace cuda {

using result = int;
using context = struct context_s *;

constexpr unsigned host_portable = 1; // for every context; the same bits for allocation and registration
constexpr unsigned host_mapped = 2;

// symbol, member, parameters: each answers a result.
#define CUDA_FUNCTIONS(X)                                                                                \
    X(cuInit, init, unsigned flags)                                                                      \
    X(cuGetErrorName, get_error_name, result, const char **name)                                         \
    X(cuDevicePrimaryCtxRetain, primary_context_retain, context *out, int device)                        \
    X(cuDevicePrimaryCtxRelease_v2, primary_context_release, int device)                                 \
    X(cuCtxPushCurrent_v2, context_push, context)                                                        \
    X(cuCtxPopCurrent_v2, context_pop, context *out)                                                     \
    X(cuMemHostAlloc, host_alloc, void **out, size_t size, unsigned flags)                               \
    X(cuMemFreeHost, host_free, void *)                                                                  \
    X(cuMemHostRegister_v2, host_register, void *, size_t size, unsigned flags)                          \
    X(cuMemHostUnregister, host_unregister, void *)

struct library {
#define CUDA_MEMBER(symbol, member, ...) result (*member)(__VA_ARGS__);
    CUDA_FUNCTIONS(CUDA_MEMBER)
#undef CUDA_MEMBER
    bool stand_in; // the tests' driver on host memory: nothing measured on it means anything
};

// libcuda.so.1, opened and initialised once; throws what is missing.
const library &load();

// Throws the driver's name of what failed.
void check(result answer, const char *call);

// A device's primary context, current on this thread while the value lives.
class current_device {
  public:
    explicit current_device(int device);
    ~current_device();
    current_device(const current_device &) = delete;
    current_device &operator=(const current_device &) = delete;

  private:
    int device_;
};

} // namespace cuda
