// SPDX-License-Identifier: Apache-2.0
// The CUDA driver as an engine uses it beside the library: contexts, memory and copies of the test's own.
//
// It is the driver that the library found, whether the machine's or the stand-in of the tests.
#pragma once

#include "cuda_api.h"
#include "harness.h"

/* Every function that the tests call by themselves. */
#define DRIVER_FUNCTIONS(FUNCTION)                                                                   \
    FUNCTION(cuDriverGetVersion)                                                                     \
    FUNCTION(cuGetErrorName)                                                                         \
    FUNCTION(cuDeviceGetCount)                                                                       \
    FUNCTION(cuDeviceGetName)                                                                        \
    FUNCTION(cuDeviceGetUuid_v2)                                                                     \
    FUNCTION(cuDeviceGetAttribute)                                                                   \
    FUNCTION(cuDeviceTotalMem_v2)                                                                    \
    FUNCTION(cuDeviceCanAccessPeer)                                                                  \
    FUNCTION(cuDevicePrimaryCtxRetain)                                                               \
    FUNCTION(cuDevicePrimaryCtxRelease_v2)                                                           \
    FUNCTION(cuDevicePrimaryCtxReset_v2)                                                             \
    FUNCTION(cuDevicePrimaryCtxGetState)                                                             \
    FUNCTION(cuCtxCreate_v2)                                                                         \
    FUNCTION(cuCtxDestroy_v2)                                                                        \
    FUNCTION(cuCtxGetCurrent)                                                                        \
    FUNCTION(cuCtxSetCurrent)                                                                        \
    FUNCTION(cuCtxPushCurrent_v2)                                                                    \
    FUNCTION(cuCtxPopCurrent_v2)                                                                     \
    FUNCTION(cuCtxSynchronize)                                                                       \
    FUNCTION(cuMemAlloc_v2)                                                                          \
    FUNCTION(cuMemAllocManaged)                                                                      \
    FUNCTION(cuMemFree_v2)                                                                           \
    FUNCTION(cuMemGetInfo_v2)                                                                        \
    FUNCTION(cuMemHostAlloc)                                                                         \
    FUNCTION(cuMemFreeHost)                                                                          \
    FUNCTION(cuMemHostRegister_v2)                                                                   \
    FUNCTION(cuMemHostUnregister)                                                                    \
    FUNCTION(cuMemHostGetDevicePointer_v2)                                                           \
    FUNCTION(cuPointerGetAttribute)                                                                  \
    FUNCTION(cuMemGetAllocationGranularity)                                                          \
    FUNCTION(cuMemAddressReserve)                                                                    \
    FUNCTION(cuMemAddressFree)                                                                       \
    FUNCTION(cuMemCreate)                                                                            \
    FUNCTION(cuMemRelease)                                                                           \
    FUNCTION(cuMemMap)                                                                               \
    FUNCTION(cuMemUnmap)                                                                             \
    FUNCTION(cuMemSetAccess)                                                                         \
    FUNCTION(cuMemGetAccess)                                                                         \
    FUNCTION(cuMemExportToShareableHandle)                                                           \
    FUNCTION(cuMemcpyHtoD_v2)                                                                        \
    FUNCTION(cuMemcpyDtoH_v2)                                                                        \
    FUNCTION(cuMemcpyHtoDAsync_v2)                                                                   \
    FUNCTION(cuMemcpyDtoHAsync_v2)                                                                   \
    FUNCTION(cuMemcpyAsync)                                                                          \
    FUNCTION(cuStreamBeginCapture_v2)                                                                \
    FUNCTION(cuStreamIsCapturing)                                                                    \
    FUNCTION(cuStreamEndCapture)                                                                     \
    FUNCTION(cuGraphInstantiateWithFlags)                                                            \
    FUNCTION(cuGraphLaunch)                                                                          \
    FUNCTION(cuGraphExecDestroy)                                                                     \
    FUNCTION(cuGraphDestroy)                                                                         \
    FUNCTION(cuStreamCreate)                                                                         \
    FUNCTION(cuStreamSynchronize)                                                                    \
    FUNCTION(cuStreamDestroy_v2)                                                                     \
    FUNCTION(cuEventCreate)                                                                          \
    FUNCTION(cuEventRecord)                                                                          \
    FUNCTION(cuEventSynchronize)                                                                     \
    FUNCTION(cuEventDestroy_v2)

typedef struct driver {
#define FUNCTION(name) __typeof__(name) *name;
    DRIVER_FUNCTIONS(FUNCTION)
#undef FUNCTION
} driver;

/* Has the library find the driver, the first time. */
const driver *driver_get(void);
/* A symbol of the same library; NULL where it has none. */
void *driver_symbol(const char *name);
/* Devices there are. */
int driver_devices(void);

/* A call that must work: `CU(cuMemAlloc_v2(&address, size))`. */
#define CU(call) driver_check(__FILE__, __LINE__, #call, driver_get()->call)
void driver_check(const char *file, int line, const char *call, CUresult result);

/* The current context of this thread; NULL for none. */
CUcontext current_context(void);
/* Whether a device's primary context is active: somebody made it. */
bool has_primary_context(int device);

/* Keeps a device's primary context alive, and so what is allocated in it. */
void retain_device(int device);
void release_device(int device);
/* Keeps that of device 0 for as long as the process lives: to make a context takes a GPU longer than all else in
   many a test. */
void keep_device(void);
/* Retains it until the scope ends. */
#define RETAIN_DEVICE(device) CLEANUP(release_retained) const int retained_##device = retain_for_scope(device)
int retain_for_scope(int device);
void release_retained(const int *device);
/* Retains it and makes it current; leaving restores what was. */
void enter_device(int device);
void leave_device(int device);
/* One call of the driver that must work, with the device's primary context current. */
#define CU_ON(device, call)                                                                          \
    do {                                                                                             \
        enter_device(device);                                                                        \
        CU(call);                                                                                    \
        leave_device(device);                                                                        \
    } while (0)

/* Bytes free on a device. */
uint64_t free_memory(int device);
/* To and from any memory of a device that one copy of the driver's takes. */
void write_device(int device, uint64_t to, const void *from, size_t size);
void read_device(int device, void *to, uint64_t from, size_t size);

/* A case that runs once for each device, which it names `device`. */
#define TEST_EACH_DEVICE(name)                                                                       \
    static void name##_of(int device);                                                               \
    TEST(name) {                                                                                     \
        for (int device = 0; device < driver_devices(); device++) {                                  \
            name##_of(device);                                                                       \
        }                                                                                            \
    }                                                                                                \
    static void name##_of(int device)
