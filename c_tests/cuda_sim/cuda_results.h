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
    RESULT(ALREADY_MAPPED, 208, "something is mapped there already")                                 \
    RESULT(NO_BINARY_FOR_GPU, 209, "the module has no code for this device")                         \
    RESULT(NOT_MAPPED, 211, "nothing is mapped there")                                               \
    RESULT(ECC_UNCORRECTABLE, 214, "the device's memory had an error beyond correction")             \
    RESULT(PEER_ACCESS_UNSUPPORTED, 217, "the devices cannot reach each other")                      \
    RESULT(INVALID_PTX, 218, "the module cannot be compiled")                                        \
    RESULT(OPERATING_SYSTEM, 304, "a call to the operating system failed")                           \
    RESULT(INVALID_HANDLE, 400, "there is no such object")                                           \
    RESULT(ILLEGAL_STATE, 401, "the object is in no state for this")                                 \
    RESULT(NOT_FOUND, 500, "there is no symbol of that name")                                        \
    RESULT(NOT_READY, 600, "the work is not done yet")                                               \
    RESULT(ILLEGAL_ADDRESS, 700, "the work reached memory that it may not reach")                    \
    RESULT(LAUNCH_OUT_OF_RESOURCES, 701, "the kernel needs more than the device has")                \
    RESULT(LAUNCH_TIMEOUT, 702, "the kernel took too long")                                          \
    RESULT(PEER_ACCESS_ALREADY_ENABLED, 704, "peer access is enabled already")                       \
    RESULT(PEER_ACCESS_NOT_ENABLED, 705, "peer access is not enabled")                               \
    RESULT(PRIMARY_CONTEXT_ACTIVE, 708, "the primary context is active already")                     \
    RESULT(CONTEXT_IS_DESTROYED, 709, "the current context has been destroyed")                      \
    RESULT(HOST_MEMORY_ALREADY_REGISTERED, 712, "the host memory is registered already")             \
    RESULT(HOST_MEMORY_NOT_REGISTERED, 713, "the host memory is not registered")                     \
    RESULT(LAUNCH_FAILED, 719, "the kernel failed")                                                  \
    RESULT(STREAM_CAPTURE_UNSUPPORTED, 900, "a captured stream does not take this")                  \
    RESULT(STREAM_CAPTURE_INVALIDATED, 901, "something ended the capture in failure")                \
    RESULT(NOT_PERMITTED, 800, "this process may not do that")                                       \
    RESULT(NOT_SUPPORTED, 801, "the device or the driver cannot do that")                            \
    RESULT(SYSTEM_NOT_READY, 802, "the system is not ready")                                         \
    RESULT(SYSTEM_DRIVER_MISMATCH, 803, "the parts of the driver are of different versions")         \
    RESULT(TIMEOUT, 909, "the time is up")                                                           \
    RESULT(UNKNOWN, 999, "an error of unknown kind")
