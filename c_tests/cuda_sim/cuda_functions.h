// SPDX-License-Identifier: Apache-2.0
// Every driver function of the stand-in: FUNCTION(name, what must be there before, how it fails on demand).
#pragma once

/* What must be there: NOTHING; DRIVER: cuInit; HANDLE: what the handle names, which the real driver follows before it
 * looks at the current context: it crashes where that went with a context that was reset or destroyed, and so does the
 * stand-in; LIVE: a current context, if any, that is not destroyed; CONTEXT: a current context that is not destroyed.
 * How it fails: ACTS: before it does anything; RELEASES: after it has let go, as when the driver reports an
 * error of earlier work; SUBMITS: as ACTS, or on a later call, when the work is done. */
#define CUDA_FUNCTIONS(FUNCTION)                                                                     \
    FUNCTION(cuInit, NOTHING, ACTS)                                                                  \
    FUNCTION(cuDriverGetVersion, NOTHING, ACTS)                                                      \
    FUNCTION(cuGetErrorName, NOTHING, ACTS)                                                          \
    FUNCTION(cuGetErrorString, NOTHING, ACTS)                                                        \
    FUNCTION(cuDeviceGetCount, DRIVER, ACTS)                                                         \
    FUNCTION(cuDeviceGet, DRIVER, ACTS)                                                              \
    FUNCTION(cuDeviceGetName, DRIVER, ACTS)                                                          \
    FUNCTION(cuDeviceGetUuid, DRIVER, ACTS)                                                          \
    FUNCTION(cuDeviceGetUuid_v2, DRIVER, ACTS)                                                       \
    FUNCTION(cuDeviceTotalMem_v2, DRIVER, ACTS)                                                      \
    FUNCTION(cuDeviceGetAttribute, DRIVER, ACTS)                                                     \
    FUNCTION(cuDeviceGetPCIBusId, DRIVER, ACTS)                                                      \
    FUNCTION(cuDeviceCanAccessPeer, DRIVER, ACTS)                                                    \
    FUNCTION(cuDevicePrimaryCtxRetain, DRIVER, ACTS)                                                 \
    FUNCTION(cuDevicePrimaryCtxRelease_v2, DRIVER, RELEASES)                                         \
    FUNCTION(cuDevicePrimaryCtxReset_v2, DRIVER, RELEASES)                                           \
    FUNCTION(cuDevicePrimaryCtxGetState, DRIVER, ACTS)                                               \
    FUNCTION(cuCtxCreate_v2, DRIVER, ACTS)                                                           \
    FUNCTION(cuCtxDestroy_v2, DRIVER, RELEASES)                                                      \
    FUNCTION(cuCtxPushCurrent_v2, DRIVER, ACTS)                                                      \
    FUNCTION(cuCtxPopCurrent_v2, DRIVER, RELEASES)                                                   \
    FUNCTION(cuCtxGetCurrent, DRIVER, ACTS)                                                          \
    FUNCTION(cuCtxSetCurrent, DRIVER, ACTS)                                                          \
    FUNCTION(cuCtxGetDevice, DRIVER, ACTS)                                                           \
    FUNCTION(cuCtxGetId, DRIVER, ACTS)                                                               \
    FUNCTION(cuCtxEnablePeerAccess, CONTEXT, ACTS)                                                   \
    FUNCTION(cuCtxSynchronize, CONTEXT, ACTS)                                                        \
    FUNCTION(cuMemAlloc_v2, CONTEXT, ACTS)                                                           \
    FUNCTION(cuMemAllocManaged, CONTEXT, ACTS)                                                       \
    FUNCTION(cuMemFree_v2, LIVE, RELEASES)                                                           \
    FUNCTION(cuMemGetInfo_v2, CONTEXT, ACTS)                                                         \
    FUNCTION(cuMemGetAddressRange_v2, CONTEXT, ACTS)                                                 \
    FUNCTION(cuPointerGetAttribute, DRIVER, ACTS)                                                    \
    FUNCTION(cuPointerGetAttributes, DRIVER, ACTS)                                                   \
    FUNCTION(cuMemHostAlloc, CONTEXT, ACTS)                                                          \
    FUNCTION(cuMemFreeHost, LIVE, RELEASES)                                                          \
    FUNCTION(cuMemHostRegister_v2, CONTEXT, ACTS)                                                    \
    FUNCTION(cuMemHostUnregister, LIVE, RELEASES)                                                    \
    FUNCTION(cuMemHostGetDevicePointer_v2, CONTEXT, ACTS)                                            \
    FUNCTION(cuMemGetAllocationGranularity, DRIVER, ACTS)                                            \
    FUNCTION(cuMemAddressReserve, DRIVER, ACTS)                                                      \
    FUNCTION(cuMemAddressFree, DRIVER, RELEASES)                                                     \
    FUNCTION(cuMemCreate, DRIVER, ACTS)                                                              \
    FUNCTION(cuMemRelease, DRIVER, RELEASES)                                                         \
    FUNCTION(cuMemMap, DRIVER, ACTS)                                                                 \
    FUNCTION(cuMemUnmap, DRIVER, RELEASES)                                                           \
    FUNCTION(cuMemSetAccess, DRIVER, ACTS)                                                           \
    FUNCTION(cuMemGetAccess, DRIVER, ACTS)                                                           \
    FUNCTION(cuMemRetainAllocationHandle, DRIVER, ACTS)                                              \
    FUNCTION(cuMemGetAllocationPropertiesFromHandle, DRIVER, ACTS)                                   \
    FUNCTION(cuMemExportToShareableHandle, DRIVER, ACTS)                                             \
    FUNCTION(cuMemImportFromShareableHandle, DRIVER, ACTS)                                           \
    FUNCTION(cuIpcGetMemHandle, CONTEXT, ACTS)                                                       \
    FUNCTION(cuIpcOpenMemHandle_v2, CONTEXT, ACTS)                                                   \
    FUNCTION(cuIpcCloseMemHandle, CONTEXT, RELEASES)                                                 \
    FUNCTION(cuMemcpy, CONTEXT, ACTS)                                                                \
    FUNCTION(cuMemcpyAsync, HANDLE, SUBMITS)                                                         \
    FUNCTION(cuMemcpyHtoD_v2, CONTEXT, ACTS)                                                         \
    FUNCTION(cuMemcpyDtoH_v2, CONTEXT, ACTS)                                                         \
    FUNCTION(cuMemcpyDtoD_v2, CONTEXT, ACTS)                                                         \
    FUNCTION(cuMemcpyHtoDAsync_v2, HANDLE, SUBMITS)                                                  \
    FUNCTION(cuMemcpyDtoHAsync_v2, HANDLE, SUBMITS)                                                  \
    FUNCTION(cuMemcpyDtoDAsync_v2, HANDLE, SUBMITS)                                                  \
    FUNCTION(cuMemcpyBatchAsync, HANDLE, SUBMITS)                                                    \
    FUNCTION(cuMemcpy2DAsync_v2, HANDLE, SUBMITS)                                                    \
    FUNCTION(cuMemsetD8_v2, CONTEXT, ACTS)                                                           \
    FUNCTION(cuMemsetD8Async, HANDLE, SUBMITS)                                                       \
    FUNCTION(cuStreamCreate, CONTEXT, ACTS)                                                          \
    FUNCTION(cuStreamCreateWithPriority, CONTEXT, ACTS)                                              \
    FUNCTION(cuStreamDestroy_v2, HANDLE, RELEASES)                                                   \
    FUNCTION(cuStreamSynchronize, HANDLE, ACTS)                                                      \
    FUNCTION(cuStreamQuery, HANDLE, ACTS)                                                            \
    FUNCTION(cuStreamWaitEvent, HANDLE, ACTS)                                                        \
    FUNCTION(cuStreamGetCtx, HANDLE, ACTS)                                                           \
    FUNCTION(cuStreamIsCapturing, HANDLE, ACTS)                                                      \
    FUNCTION(cuStreamBeginCapture_v2, LIVE, ACTS)                                                    \
    FUNCTION(cuStreamEndCapture, LIVE, ACTS)                                                         \
    FUNCTION(cuThreadExchangeStreamCaptureMode, DRIVER, ACTS)                                        \
    FUNCTION(cuGraphInstantiateWithFlags, DRIVER, ACTS)                                              \
    FUNCTION(cuGraphLaunch, LIVE, ACTS)                                                              \
    FUNCTION(cuGraphExecDestroy, DRIVER, RELEASES)                                                   \
    FUNCTION(cuGraphDestroy, DRIVER, RELEASES)                                                       \
    FUNCTION(cuModuleLoadData, CONTEXT, ACTS)                                                        \
    FUNCTION(cuModuleUnload, HANDLE, RELEASES)                                                       \
    FUNCTION(cuModuleGetFunction, HANDLE, ACTS)                                                      \
    FUNCTION(cuLaunchKernel, HANDLE, SUBMITS)                                                        \
    FUNCTION(cuEventCreate, CONTEXT, ACTS)                                                           \
    FUNCTION(cuEventRecord, HANDLE, ACTS)                                                            \
    FUNCTION(cuEventQuery, HANDLE, ACTS)                                                             \
    FUNCTION(cuEventSynchronize, HANDLE, ACTS)                                                       \
    FUNCTION(cuEventElapsedTime, HANDLE, ACTS)                                                       \
    FUNCTION(cuEventDestroy_v2, HANDLE, RELEASES)
