// SPDX-License-Identifier: Apache-2.0
// The driver functions of the stand-in: FUNCTION(name, precondition, how it fails on demand, parameters).
#pragma once

/* Preconditions:
   - NOTHING;
   - DRIVER: cuInit was called;
   - HANDLE: the object of the handle exists. The real driver dereferences the handle before it checks the current
     context. So it crashes if the object was destroyed with its context, and so does the stand-in;
   - LIVE: the current context, if there is one, is not destroyed;
   - CONTEXT: there is a current context, and it is not destroyed.
   How it fails:
   - ACTS: without effect;
   - RELEASES: after it has released, as when the driver reports an error of earlier work;
   - SUBMITS: as ACTS, or in a later call, after the work has run. */
#define CUDA_FUNCTIONS(FUNCTION)                                                                             \
    FUNCTION(cuInit, NOTHING, ACTS, (unsigned flags))                                                        \
    FUNCTION(cuDriverGetVersion, NOTHING, ACTS, (int *version))                                              \
    FUNCTION(cuGetErrorName, NOTHING, ACTS, (CUresult error, const char **name))                             \
    FUNCTION(cuGetErrorString, NOTHING, ACTS, (CUresult error, const char **sentence))                       \
    FUNCTION(cuDeviceGetCount, DRIVER, ACTS, (int *count))                                                   \
    FUNCTION(cuDeviceGet, DRIVER, ACTS, (CUdevice *device, int ordinal))                                     \
    FUNCTION(cuDeviceGetName, DRIVER, ACTS, (char *name, int size, CUdevice device))                         \
    FUNCTION(cuDeviceGetUuid, DRIVER, ACTS, (CUuuid *uuid, CUdevice device))                                 \
    FUNCTION(cuDeviceGetUuid_v2, DRIVER, ACTS, (CUuuid *uuid, CUdevice device))                              \
    FUNCTION(cuDeviceTotalMem_v2, DRIVER, ACTS, (size_t *bytes, CUdevice device))                            \
    FUNCTION(cuDeviceGetAttribute, DRIVER, ACTS,                                                             \
             (int *value, CUdevice_attribute attribute, CUdevice device))                                    \
    FUNCTION(cuDeviceGetPCIBusId, DRIVER, ACTS, (char *id, int size, CUdevice device))                       \
    FUNCTION(cuDeviceCanAccessPeer, DRIVER, ACTS, (int *can, CUdevice device, CUdevice peer))                \
    FUNCTION(cuDevicePrimaryCtxRetain, DRIVER, ACTS, (CUcontext *context, CUdevice device))                  \
    FUNCTION(cuDevicePrimaryCtxRelease_v2, DRIVER, RELEASES, (CUdevice device))                              \
    FUNCTION(cuDevicePrimaryCtxReset_v2, DRIVER, RELEASES, (CUdevice device))                                \
    FUNCTION(cuDevicePrimaryCtxGetState, DRIVER, ACTS, (CUdevice device, unsigned *flags, int *active))      \
    FUNCTION(cuCtxCreate_v2, DRIVER, ACTS, (CUcontext *context, unsigned flags, CUdevice device))            \
    FUNCTION(cuCtxDestroy_v2, DRIVER, RELEASES, (CUcontext context))                                         \
    FUNCTION(cuCtxPushCurrent_v2, DRIVER, ACTS, (CUcontext context))                                         \
    FUNCTION(cuCtxPopCurrent_v2, DRIVER, RELEASES, (CUcontext *context))                                     \
    FUNCTION(cuCtxGetCurrent, DRIVER, ACTS, (CUcontext *context))                                            \
    FUNCTION(cuCtxSetCurrent, DRIVER, ACTS, (CUcontext context))                                             \
    FUNCTION(cuCtxGetDevice, DRIVER, ACTS, (CUdevice *device))                                               \
    FUNCTION(cuCtxGetId, DRIVER, ACTS, (CUcontext context, unsigned long long *id))                          \
    FUNCTION(cuCtxEnablePeerAccess, CONTEXT, ACTS, (CUcontext peer, unsigned flags))                         \
    FUNCTION(cuCtxSynchronize, CONTEXT, ACTS, (void))                                                        \
    FUNCTION(cuMemAlloc_v2, CONTEXT, ACTS, (CUdeviceptr *address, size_t size))                              \
    FUNCTION(cuMemAllocManaged, CONTEXT, ACTS, (CUdeviceptr *address, size_t size, unsigned flags))          \
    FUNCTION(cuMemFree_v2, LIVE, RELEASES, (CUdeviceptr address))                                            \
    FUNCTION(cuMemGetInfo_v2, CONTEXT, ACTS, (size_t *free, size_t *total))                                  \
    FUNCTION(cuMemGetAddressRange_v2, CONTEXT, ACTS, (CUdeviceptr *base, size_t *size, CUdeviceptr address)) \
    FUNCTION(cuPointerGetAttribute, DRIVER, ACTS,                                                            \
             (void *data, CUpointer_attribute attribute, CUdeviceptr address))                               \
    FUNCTION(cuPointerGetAttributes, DRIVER, ACTS,                                                           \
             (unsigned count, CUpointer_attribute *attributes, void **data, CUdeviceptr address))            \
    FUNCTION(cuMemHostAlloc, CONTEXT, ACTS, (void **address, size_t size, unsigned flags))                   \
    FUNCTION(cuMemFreeHost, LIVE, RELEASES, (void *address))                                                 \
    FUNCTION(cuMemHostRegister_v2, CONTEXT, ACTS, (void *address, size_t size, unsigned flags))              \
    FUNCTION(cuMemHostUnregister, LIVE, RELEASES, (void *address))                                           \
    FUNCTION(cuMemHostGetDevicePointer_v2, CONTEXT, ACTS, (CUdeviceptr *device, void *host, unsigned flags)) \
    FUNCTION(cuMemGetAllocationGranularity, DRIVER, ACTS,                                                    \
             (size_t *granularity, const CUmemAllocationProp *prop,                                          \
              CUmemAllocationGranularity_flags option))                                                      \
    FUNCTION(cuMemAddressReserve, DRIVER, ACTS,                                                              \
             (CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr hint,                         \
              unsigned long long flags))                                                                     \
    FUNCTION(cuMemAddressFree, DRIVER, RELEASES, (CUdeviceptr address, size_t size))                         \
    FUNCTION(cuMemCreate, DRIVER, ACTS,                                                                      \
             (CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,            \
              unsigned long long flags))                                                                     \
    FUNCTION(cuMemRelease, DRIVER, RELEASES, (CUmemGenericAllocationHandle handle))                          \
    FUNCTION(cuMemMap, DRIVER, ACTS,                                                                         \
             (CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,          \
              unsigned long long flags))                                                                     \
    FUNCTION(cuMemUnmap, DRIVER, RELEASES, (CUdeviceptr address, size_t size))                               \
    FUNCTION(cuMemSetAccess, DRIVER, ACTS,                                                                   \
             (CUdeviceptr address, size_t size, const CUmemAccessDesc *accesses, size_t count))              \
    FUNCTION(cuMemGetAccess, DRIVER, ACTS,                                                                   \
             (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address))                \
    FUNCTION(cuMemRetainAllocationHandle, DRIVER, ACTS,                                                      \
             (CUmemGenericAllocationHandle *handle, void *address))                                          \
    FUNCTION(cuMemGetAllocationPropertiesFromHandle, DRIVER, ACTS,                                           \
             (CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle))                               \
    FUNCTION(cuMemExportToShareableHandle, DRIVER, ACTS,                                                     \
             (void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,          \
              unsigned long long flags))                                                                     \
    FUNCTION(cuMemImportFromShareableHandle, DRIVER, ACTS,                                                   \
             (CUmemGenericAllocationHandle *handle, void *shareable, CUmemAllocationHandleType type))        \
    FUNCTION(cuIpcGetMemHandle, CONTEXT, ACTS, (CUipcMemHandle *handle, CUdeviceptr address))                \
    FUNCTION(cuIpcOpenMemHandle_v2, CONTEXT, ACTS,                                                           \
             (CUdeviceptr *address, CUipcMemHandle handle, unsigned flags))                                  \
    FUNCTION(cuIpcCloseMemHandle, CONTEXT, RELEASES, (CUdeviceptr address))                                  \
    FUNCTION(cuMemcpy, CONTEXT, ACTS, (CUdeviceptr destination, CUdeviceptr source, size_t size))            \
    FUNCTION(cuMemcpyAsync, HANDLE, SUBMITS,                                                                 \
             (CUdeviceptr destination, CUdeviceptr source, size_t size, CUstream stream))                    \
    FUNCTION(cuMemcpyHtoD_v2, CONTEXT, ACTS, (CUdeviceptr destination, const void *source, size_t size))     \
    FUNCTION(cuMemcpyDtoH_v2, CONTEXT, ACTS, (void *destination, CUdeviceptr source, size_t size))           \
    FUNCTION(cuMemcpyDtoD_v2, CONTEXT, ACTS, (CUdeviceptr destination, CUdeviceptr source, size_t size))     \
    FUNCTION(cuMemcpyHtoDAsync_v2, HANDLE, SUBMITS,                                                          \
             (CUdeviceptr destination, const void *source, size_t size, CUstream stream))                    \
    FUNCTION(cuMemcpyDtoHAsync_v2, HANDLE, SUBMITS,                                                          \
             (void *destination, CUdeviceptr source, size_t size, CUstream stream))                          \
    FUNCTION(cuMemcpyDtoDAsync_v2, HANDLE, SUBMITS,                                                          \
             (CUdeviceptr destination, CUdeviceptr source, size_t size, CUstream stream))                    \
    FUNCTION(cuMemcpyBatchAsync, HANDLE, SUBMITS,                                                            \
             (CUdeviceptr *destinations, CUdeviceptr *sources, size_t *sizes, size_t count,                  \
              CUmemcpyAttributes *attributes, size_t *first_copies, size_t num_attributes, size_t *failed,   \
              CUstream stream))                                                                              \
    FUNCTION(cuMemcpy2DAsync_v2, HANDLE, SUBMITS, (const CUDA_MEMCPY2D *copy, CUstream stream))              \
    FUNCTION(cuMemsetD8_v2, CONTEXT, ACTS, (CUdeviceptr destination, unsigned char value, size_t size))      \
    FUNCTION(cuMemsetD8Async, HANDLE, SUBMITS,                                                               \
             (CUdeviceptr destination, unsigned char value, size_t size, CUstream stream))                   \
    FUNCTION(cuStreamCreate, CONTEXT, ACTS, (CUstream *stream, unsigned flags))                              \
    FUNCTION(cuStreamCreateWithPriority, CONTEXT, ACTS, (CUstream *stream, unsigned flags, int priority))    \
    FUNCTION(cuStreamDestroy_v2, HANDLE, RELEASES, (CUstream stream))                                        \
    FUNCTION(cuStreamSynchronize, HANDLE, ACTS, (CUstream stream))                                           \
    FUNCTION(cuStreamQuery, HANDLE, ACTS, (CUstream stream))                                                 \
    FUNCTION(cuStreamWaitEvent, HANDLE, ACTS, (CUstream stream, CUevent event, unsigned flags))              \
    FUNCTION(cuStreamGetCtx, HANDLE, ACTS, (CUstream stream, CUcontext *context))                            \
    FUNCTION(cuStreamIsCapturing, HANDLE, ACTS, (CUstream stream, CUstreamCaptureStatus *status))            \
    FUNCTION(cuStreamBeginCapture_v2, LIVE, ACTS, (CUstream stream, CUstreamCaptureMode mode))               \
    FUNCTION(cuStreamEndCapture, LIVE, ACTS, (CUstream stream, CUgraph *graph))                              \
    FUNCTION(cuThreadExchangeStreamCaptureMode, DRIVER, ACTS, (CUstreamCaptureMode *mode))                   \
    FUNCTION(cuGraphInstantiateWithFlags, DRIVER, ACTS,                                                      \
             (CUgraphExec *executable, CUgraph graph, unsigned long long flags))                             \
    FUNCTION(cuGraphLaunch, LIVE, ACTS, (CUgraphExec executable, CUstream stream))                           \
    FUNCTION(cuGraphExecDestroy, DRIVER, RELEASES, (CUgraphExec executable))                                 \
    FUNCTION(cuGraphDestroy, DRIVER, RELEASES, (CUgraph graph))                                              \
    FUNCTION(cuLinkCreate_v2, CONTEXT, ACTS,                                                                 \
             (unsigned count, CUjit_option *options, void **values, CUlinkState *state))                     \
    FUNCTION(cuLinkAddData_v2, HANDLE, ACTS,                                                                 \
             (CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name,             \
              unsigned count, CUjit_option *options, void **values))                                         \
    FUNCTION(cuLinkComplete, HANDLE, ACTS, (CUlinkState state, void **code, size_t *size))                   \
    FUNCTION(cuLinkDestroy, HANDLE, RELEASES, (CUlinkState state))                                           \
    FUNCTION(cuModuleLoadData, CONTEXT, ACTS, (CUmodule *module, const void *image))                         \
    FUNCTION(cuModuleUnload, HANDLE, RELEASES, (CUmodule module))                                            \
    FUNCTION(cuModuleGetFunction, HANDLE, ACTS, (CUfunction *function, CUmodule module, const char *name))   \
    FUNCTION(cuLaunchKernel, HANDLE, SUBMITS,                                                                \
             (CUfunction function, unsigned ctas_x, unsigned ctas_y, unsigned ctas_z, unsigned threads_x,    \
              unsigned threads_y, unsigned threads_z, unsigned shared_bytes, CUstream stream,                \
              void **parameters, void **extra))                                                              \
    FUNCTION(cuLaunchHostFunc, HANDLE, ACTS, (CUstream stream, CUhostFn function, void *data))               \
    FUNCTION(cuEventCreate, CONTEXT, ACTS, (CUevent *event, unsigned flags))                                 \
    FUNCTION(cuEventRecord, HANDLE, ACTS, (CUevent event, CUstream stream))                                  \
    FUNCTION(cuCtxRecordEvent, HANDLE, ACTS, (CUcontext context, CUevent event))                             \
    FUNCTION(cuEventQuery, HANDLE, ACTS, (CUevent event))                                                    \
    FUNCTION(cuEventSynchronize, HANDLE, ACTS, (CUevent event))                                              \
    FUNCTION(cuEventElapsedTime, HANDLE, ACTS, (float *milliseconds, CUevent first, CUevent last))           \
    FUNCTION(cuEventDestroy_v2, HANDLE, RELEASES, (CUevent event))
