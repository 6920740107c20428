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
