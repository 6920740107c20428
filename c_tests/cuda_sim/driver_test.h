// SPDX-License-Identifier: Apache-2.0
// What the tests of the stand-in share. Those that only state rules of the driver hold on a real one too:
// there, nothing is counted.
#pragma once

#include "cuda_api.h"
#include "harness.h"

#define GRANULE (2 * MIB)
#define ADDRESS(pointer) ((CUdeviceptr)(uintptr_t)(pointer))
#define POINTER(address) ((void *)(uintptr_t)(address))

/* The call succeeds, or answers this. */
#define CU(call) CU_EXPECT(CUDA_SUCCESS, call)
#define CU_EXPECT(result, call) check_driver(__FILE__, __LINE__, #call, call, result)
void check_driver(const char *file, int line, const char *call, CUresult got, CUresult expected);

/* The primary context of a device, retained and current; close_device takes both back and checks that nothing
 * is left alive. */
CUcontext open_device(CUdevice device);
void close_device(CUdevice device);
void check_nothing_left(void);
/* Closed when the scope ends. */
#define OPEN_DEVICE(device) CLEANUP(close_opened) const CUdevice opened_##device = open_for_scope(device)
CUdevice open_for_scope(CUdevice device);
void close_opened(const CUdevice *device);

/* The same for a second device, while one is open. */
#define ENTER_DEVICE(device) CLEANUP(leave_entered) const CUdevice entered_##device = enter_for_scope(device)
CUdevice enter_for_scope(CUdevice device);
void leave_entered(const CUdevice *device);
/* Initialises the driver; nothing is left alive when the scope ends. */
#define NOTHING_LEFT CLEANUP(check_left) const CUresult initialised_ = init_for_scope()
CUresult init_for_scope(void);
void check_left(const CUresult *initialised);

/* What a test destroys when the scope ends: a stream, an event, memory, a handle, memory that is mapped. */
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

/* Memory of a device that can be exported as a file descriptor. */
CUmemAllocationProp device_prop(CUdevice device);
CUmemGenericAllocationHandle create_handle(CUdevice device, size_t size);
CUmemAccessDesc access_for(CUdevice device, CUmemAccess_flags flags);
CUdeviceptr reserve(size_t size);
/* A handle of its own, mapped for the device to read and write; unmap_and_free takes back all of it. */
CUdeviceptr map_fresh(CUdevice device, size_t size);
void unmap_and_free(CUdeviceptr address, size_t size);

CUdeviceptr allocate_filled(size_t size, unsigned char value);
/* Reads through the driver. */
void check_device_filled(CUdeviceptr address, unsigned char value, size_t size);

/* The driver knows no memory at this address. */
void check_unknown(CUdeviceptr address);
/* A touch of the address by the program is a fault; tried in a forked child. */
void check_untouchable(CUdeviceptr address);
