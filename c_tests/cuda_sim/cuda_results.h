// SPDX-License-Identifier: Apache-2.0
// The driver's result codes as a list: RESULT(name without CUDA_ERROR_, number, sentence).
#pragma once

#define CUDA_ERRORS(RESULT)                                                                          \
    RESULT(INVALID_VALUE, 1, "an argument is out of its range")                                      \
    RESULT(OUT_OF_MEMORY, 2, "there is not enough memory")                                           \
    RESULT(NOT_INITIALIZED, 3, "cuInit has not been called")                                         \
    RESULT(DEINITIALIZED, 4, "the driver is shutting down")                                          \
    RESULT(STUB_LIBRARY, 34, "the library is a stub for linking")                                    \
    RESULT(NO_DEVICE, 100, "there is no device")                                                     \
    RESULT(INVALID_DEVICE, 101, "there is no such device")                                           \
    RESULT(INVALID_IMAGE, 200, "the module cannot be read")                                          \
    RESULT(INVALID_CONTEXT, 201, "there is no such context, or none is current")                     \
    RESULT(MAP_FAILED, 205, "the memory could not be mapped")                                        \
    RESULT(UNMAP_FAILED, 206, "the memory could not be unmapped")                                    \
    RESULT(ALREADY_MAPPED, 208, "the range is already mapped")                                       \
    RESULT(NO_BINARY_FOR_GPU, 209, "the module has no code for this device")                         \
    RESULT(NOT_MAPPED, 211, "the range is not mapped")                                               \
    RESULT(ECC_UNCORRECTABLE, 214, "uncorrectable error of the device's memory")                     \
    RESULT(PEER_ACCESS_UNSUPPORTED, 217, "no peer access between the devices")                       \
    RESULT(INVALID_PTX, 218, "the module cannot be compiled")                                        \
    RESULT(OPERATING_SYSTEM, 304, "a call to the operating system failed")                           \
    RESULT(INVALID_HANDLE, 400, "there is no such object")                                           \
    RESULT(ILLEGAL_STATE, 401, "not allowed in the state of the object")                             \
    RESULT(NOT_FOUND, 500, "there is no symbol of that name")                                        \
    RESULT(NOT_READY, 600, "the work is not done yet")                                               \
    RESULT(ILLEGAL_ADDRESS, 700, "the work accessed memory without permission")                      \
    RESULT(LAUNCH_OUT_OF_RESOURCES, 701, "the kernel needs more resources than exist")               \
    RESULT(LAUNCH_TIMEOUT, 702, "the kernel took too long")                                          \
    RESULT(PEER_ACCESS_ALREADY_ENABLED, 704, "peer access is already enabled")                       \
    RESULT(PEER_ACCESS_NOT_ENABLED, 705, "peer access is not enabled")                               \
    RESULT(PRIMARY_CONTEXT_ACTIVE, 708, "the primary context is already active")                     \
    RESULT(CONTEXT_IS_DESTROYED, 709, "the current context has been destroyed")                      \
    RESULT(HOST_MEMORY_ALREADY_REGISTERED, 712, "the host memory is already registered")             \
    RESULT(HOST_MEMORY_NOT_REGISTERED, 713, "the host memory is not registered")                     \
    RESULT(LAUNCH_FAILED, 719, "the kernel failed")                                                  \
    RESULT(STREAM_CAPTURE_UNSUPPORTED, 900, "not allowed on a captured stream")                      \
    RESULT(STREAM_CAPTURE_INVALIDATED, 901, "the capture was invalidated")                           \
    RESULT(STREAM_CAPTURE_IMPLICIT, 906, "a blocking stream is being captured")                      \
    RESULT(NOT_PERMITTED, 800, "not permitted to this process")                                      \
    RESULT(NOT_SUPPORTED, 801, "not supported by the device or the driver")                          \
    RESULT(SYSTEM_NOT_READY, 802, "the system is not ready")                                         \
    RESULT(SYSTEM_DRIVER_MISMATCH, 803, "the versions of the driver's parts differ")                 \
    RESULT(TIMEOUT, 909, "the operation timed out")                                                  \
    RESULT(UNKNOWN, 999, "unknown error")
