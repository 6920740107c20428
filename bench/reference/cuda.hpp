// SPDX-License-Identifier: Apache-2.0
// The functions of the CUDA driver that the references call, loaded at run time.
#pragma once

#include <cstddef>
#include <string>

namespace cuda {

using result = int;
using context = struct context_s *;
using stream = struct stream_s *;
using event = struct event_s *;
using module = struct module_s *;
using function = struct function_s *;
using address = unsigned long long; // of a device, or of host memory that is page-locked
using memory_handle = unsigned long long;

constexpr result not_ready = 600;
constexpr result peer_access_already_enabled = 704;

constexpr unsigned host_portable = 1; // for every context; the same bits for allocation and registration
constexpr unsigned host_mapped = 2;
constexpr unsigned stream_non_blocking = 1;
constexpr int multiprocessor_count = 16; // device attributes
constexpr int compute_capability_major = 75;
constexpr int compute_capability_minor = 76;

// CUmemLocation.
struct location {
    int kind; // 1: a device
    int id;
};

// CUmemAllocationProp.
struct memory_properties {
    int type; // 1: pinned
    unsigned handle_types;
    location where;
    void *win32_metadata;
    unsigned char compression;
    unsigned char gpu_direct_rdma;
    unsigned short usage;
    unsigned char reserved[4];
};

// CUmemAccessDesc.
struct memory_access {
    location where;
    int flags; // 3: read and write
};

// CUmemcpyAttributes.
struct copy_attributes {
    int source_access_order;
    location source_hint;
    location destination_hint;
    unsigned flags;
};

// symbol, member, parameters; each function returns a result.
#define CUDA_FUNCTIONS(X)                                                                                \
    X(cuInit, init, unsigned flags)                                                                      \
    X(cuGetErrorName, get_error_name, result, const char **name)                                         \
    X(cuDeviceGetAttribute, device_attribute, int *value, int attribute, int device)                     \
    X(cuDevicePrimaryCtxRetain, primary_context_retain, context *out, int device)                        \
    X(cuDevicePrimaryCtxRelease_v2, primary_context_release, int device)                                 \
    X(cuCtxPushCurrent_v2, context_push, context)                                                        \
    X(cuCtxPopCurrent_v2, context_pop, context *out)                                                     \
    X(cuCtxSynchronize, context_synchronize, void)                                                       \
    X(cuMemGetInfo_v2, memory_info, size_t *free, size_t *total)                                         \
    X(cuMemAlloc_v2, memory_alloc, address *out, size_t size)                                            \
    X(cuMemFree_v2, memory_free, address)                                                                \
    X(cuMemHostAlloc, host_alloc, void **out, size_t size, unsigned flags)                               \
    X(cuMemFreeHost, host_free, void *)                                                                  \
    X(cuMemHostRegister_v2, host_register, void *, size_t size, unsigned flags)                          \
    X(cuMemHostUnregister, host_unregister, void *)                                                      \
    X(cuMemAddressReserve, address_reserve, address *out, size_t size, size_t alignment, address preferences,   \
      unsigned long long flags)                                                                          \
    X(cuMemAddressFree, address_free, address, size_t size)                                              \
    X(cuMemCreate, memory_create, memory_handle *out, size_t size, const memory_properties *,            \
      unsigned long long flags)                                                                          \
    X(cuMemRelease, memory_release, memory_handle)                                                       \
    X(cuMemMap, memory_map, address, size_t size, size_t offset, memory_handle, unsigned long long flags) \
    X(cuMemUnmap, memory_unmap, address, size_t size)                                                    \
    X(cuMemSetAccess, memory_set_access, address, size_t size, const memory_access *, size_t count)      \
    X(cuMemExportToShareableHandle, memory_export, void *out, memory_handle, int type,                   \
      unsigned long long flags)                                                                          \
    X(cuMemImportFromShareableHandle, memory_import, memory_handle *out, void *shared, int type)         \
    X(cuMemcpy, copy, address to, address from, size_t size)                                             \
    X(cuMemcpyAsync, copy_async, address to, address from, size_t size, stream)                          \
    X(cuMemsetD8_v2, fill, address, unsigned char value, size_t size)                                    \
    X(cuMemsetD8Async, fill_async, address, unsigned char value, size_t size, stream)                    \
    X(cuStreamCreate, stream_create, stream *out, unsigned flags)                                        \
    X(cuStreamDestroy_v2, stream_destroy, stream)                                                        \
    X(cuStreamSynchronize, stream_synchronize, stream)                                                   \
    X(cuEventCreate, event_create, event *out, unsigned flags)                                           \
    X(cuEventRecord, event_record, event, stream)                                                        \
    X(cuEventQuery, event_query, event)                                                                  \
    X(cuEventSynchronize, event_synchronize, event)                                                      \
    X(cuEventDestroy_v2, event_destroy, event)

// Functions that old drivers or the tests' stand-in do not have; NULL if missing.
#define CUDA_OPTIONAL_FUNCTIONS(X)                                                                       \
    X(cuMemcpyBatchAsync, copy_batch, address *to, address *from, size_t *sizes, size_t count,           \
      copy_attributes *, size_t *first_copies, size_t num_attributes, size_t *failed, stream)            \
    X(cuCtxEnablePeerAccess, enable_peer_access, context, unsigned flags)                                \
    X(cuEventElapsedTime, event_elapsed, float *milliseconds, event start, event end)                    \
    X(cuModuleLoadData, module_load, module *out, const void *image)                                     \
    X(cuModuleUnload, module_unload, module)                                                             \
    X(cuModuleGetFunction, module_function, function *out, module, const char *name)                     \
    X(cuLaunchKernel, launch, function, unsigned grid_x, unsigned grid_y, unsigned grid_z,               \
      unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, stream,               \
      void **parameters, void **extra)

struct library {
#define CUDA_MEMBER(symbol, member, ...) result (*member)(__VA_ARGS__);
    CUDA_FUNCTIONS(CUDA_MEMBER)
    CUDA_OPTIONAL_FUNCTIONS(CUDA_MEMBER)
#undef CUDA_MEMBER
    bool stand_in; // the tests' driver on host memory: its figures mean nothing
};

// Loads and initialises libcuda.so.1 once. Throws if the library or a function is missing.
const library &load();

// Throws the call and the driver's name of the error, unless the result is 0.
void check(result code, const char *call);

// Lets the current context access memory of another device. Does nothing if the driver has no such call.
void reach(int other);

// Makes the primary context of a device current on this thread, until it is destroyed.
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
