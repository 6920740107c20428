// SPDX-License-Identifier: Apache-2.0
// Common to the tests of the stand-in. Tests that only check rules of the driver also pass on a real one,
// where live objects are not counted.
#pragma once

#include "cuda_api.h"
#include "cuda_sim.h"
#include "harness.h"

#define GRANULE (2 * MIB)
#define ADDRESS(pointer) ((CUdeviceptr)(uintptr_t)(pointer))
#define POINTER(address) ((void *)(uintptr_t)(address))

/* Check that a call succeeds, or returns the result. */
#define CU(call) CU_EXPECT(CUDA_SUCCESS, call)
/* Declares a variable that a call must set: `CU_GET(int, count, cuDeviceGetCount(&count));`. */
#define CU_GET(type, name, call)                                                                     \
    type name;                                                                                       \
    memset(&name, 0x5a, sizeof(name));                                                               \
    CU(call)
#define CU_EXPECT(result, call) check_driver(__FILE__, __LINE__, #call, call, result)
void check_driver(const char *file, int line, const char *call, CUresult got, CUresult expected);

/* open_device retains the primary context of a device and pushes it. close_device pops and releases it, and
 * checks that no object is alive. */
CUcontext open_device(CUdevice device);
void close_device(CUdevice device);
void check_nothing_left(void);
/* Returns the numbers of live objects. Needs the stand-in. */
sim_counts live_objects(void);
/* Opens a device until the scope ends. */
#define OPEN_DEVICE(device) CLEANUP(close_opened) const CUdevice opened_##device = open_for_scope(device)
CUdevice open_for_scope(CUdevice device);
void close_opened(const CUdevice *device);

/* Initialises the driver, and checks when the scope ends that no object is alive. */
#define NOTHING_LEFT CLEANUP(check_left) const CUresult initialised_ = init_for_scope()
CUresult init_for_scope(void);
void check_left(const CUresult *initialised);

/* Objects that are destroyed when the scope ends: a stream, an event, memory, a memory handle, a mapping. */
#define OWN_STREAM(name, flags) CLEANUP(end_stream) const CUstream name = begin_stream(flags)
#define OWN_EVENT(name, flags) CLEANUP(end_event) const CUevent name = begin_event(flags)
#define OWN_MEMORY(name, size, value)                                                                \
    CLEANUP(end_memory) const CUdeviceptr name = allocate_filled(size, value)
#define OWN_HANDLE(name, device, size)                                                               \
    CLEANUP(end_handle) const CUmemGenericAllocationHandle name = create_handle(device, size)
#define OWN_MAPPING(name, device, size) OWN_MAPPED(name, map_fresh(device, size), size)
#define OWN_MAPPED(name, address_of_it, size)                                                        \
    CLEANUP(end_mapping) const mapping name##_mapping = {address_of_it, size};                       \
    const CUdeviceptr name = name##_mapping.address
typedef struct mapping {
    CUdeviceptr address;
    size_t size;
} mapping;
CUstream begin_stream(unsigned flags);
void end_stream(const CUstream *stream);
CUevent begin_event(unsigned flags);
void end_event(const CUevent *event);
void end_memory(const CUdeviceptr *address);
void end_handle(const CUmemGenericAllocationHandle *handle);
void end_mapping(const mapping *mapping);

/* Properties of device memory that can be exported as a file descriptor. */
CUmemAllocationProp device_prop(CUdevice device);
CUmemGenericAllocationHandle create_handle(CUdevice device, size_t size);
CUmemAccessDesc access_for(CUdevice device, CUmemAccess_flags flags);
CUdeviceptr reserve(size_t size);
/* Maps new memory with read and write access of the device. unmap_and_free releases all of it. */
CUdeviceptr map_fresh(CUdevice device, size_t size);
void unmap_and_free(CUdeviceptr address, size_t size);

CUdeviceptr allocate_filled(size_t size, unsigned char value);
/* Reads through the driver. */
void check_device_filled(CUdeviceptr address, unsigned char value, size_t size);

/* Checks that the driver knows no memory at this address. */
void check_unknown(CUdeviceptr address);
/* Checks that an access of the host to the address is a fault, in a forked child. */
void check_inaccessible(CUdeviceptr address);
