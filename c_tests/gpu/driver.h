// SPDX-License-Identifier: Apache-2.0
// The CUDA driver as an engine uses it in addition to kvmem: contexts, memory and copies of the test.
//
// It is the driver that kvmem has loaded: the real one or the stand-in.
#pragma once

#include "cuda_api.h"
#include "harness.h"

/* The functions of the stand-in. Older drivers lack cuMemcpyBatchAsync; then it is NULL. */
typedef struct driver {
#define FUNCTION(name, need, manner, parameters) __typeof__(name) *name;
    CUDA_FUNCTIONS(FUNCTION)
#undef FUNCTION
} driver;

/* The first call makes kvmem load the driver. */
const driver *driver_get(void);
/* Returns a symbol of the driver library, or NULL. */
void *driver_symbol(const char *name);
/* Returns whether the driver is the stand-in. */
bool driver_is_stand_in(void);
/* Whether a GPU leaves out the combination of this number. It runs every fifth of many combinations that
   differ in places and kinds of layouts; the stand-in runs all. */
bool driver_leaves_out(size_t number);
/* Returns the number of devices. */
int driver_devices(void);
/* Loops over invalid ordinals of devices: `EACH_MISSING_DEVICE(missing) { ... *missing ... }`. */
#define EACH_MISSING_DEVICE(missing)                                                                 \
    for (const int *missing = driver_missing_devices(), *end_ = missing + NUM_MISSING_DEVICES;       \
         missing < end_; missing++)
#define NUM_MISSING_DEVICES 4
const int *driver_missing_devices(void);

/* Checks that a call succeeds: `CU(cuMemAlloc_v2(&address, size))`. */
#define CU(call) driver_check(__FILE__, __LINE__, #call, driver_get()->call)
/* Declares a variable that a call must set: `CU_GET(int, count, cuDeviceGetCount(&count));`. */
#define CU_GET(type, name, call)                                                                     \
    type name;                                                                                       \
    memset(&name, 0x5a, sizeof(name));                                                               \
    CU(call)
void driver_check(const char *file, int line, const char *call, CUresult result);

/* Returns the current context of this thread, or NULL. */
CUcontext current_context(void);
/* Returns whether a device's primary context is active. */
bool has_primary_context(int device);

/* Returns CU_MEMORYTYPE_* of an address; 0 if the driver knows no memory there. */
unsigned driver_memory_type(uint64_t address);

/* Retains a device's primary context, which keeps the memory that was allocated in it alive. */
void retain_device(int device);
void release_device(int device);
/* Retains the primary context of device 0 until the process ends. Creating a context on a GPU takes longer
   than the rest of many tests. */
void keep_device(void);
bool device_is_kept(void);
/* Retains the primary context until the scope ends. */
#define RETAIN_DEVICE(device) CLEANUP(release_retained) const int retained_##device = retain_for_scope(device)
int retain_for_scope(int device);
void release_retained(const int *device);
/* enter_device retains the primary context and pushes it; leave_device pops and releases it. */
void enter_device(int device);
void leave_device(int device);
/* Checks that a driver call succeeds with the device's primary context current. */
#define CU_ON(device, call)                                                                          \
    do {                                                                                             \
        enter_device(device);                                                                        \
        CU(call);                                                                                    \
        leave_device(device);                                                                        \
    } while (0)

/* Returns the free bytes of a device. */
uint64_t free_memory(int device);
/* Copy to and from memory of a device, and wait for the copy. The range must be valid for a single copy of
   the driver. */
void write_device(int device, uint64_t to, const void *from, size_t size);
void read_device(int device, void *to, uint64_t from, size_t size);

/* Defines a case that runs once for each device, with the parameter `device`. */
#define TEST_EACH_DEVICE(name)                                                                       \
    static void name##_of(int device);                                                               \
    TEST(name) {                                                                                     \
        for (int device = 0; device < driver_devices(); device++) {                                  \
            name##_of(device);                                                                       \
        }                                                                                            \
    }                                                                                                \
    static void name##_of(int device)
