// SPDX-License-Identifier: Apache-2.0
// The CUDA driver as an engine uses it beside the library: contexts, memory and copies of the test's own.
//
// It is the driver that the library found, whether the machine's or the stand-in of the tests.
#pragma once

#include "cuda_api.h"
#include "harness.h"

/* Every function that the stand-in has. An older driver lacks cuMemcpyBatchAsync. */
typedef struct driver {
#define FUNCTION(name, need, manner, parameters) __typeof__(name) *name;
    CUDA_FUNCTIONS(FUNCTION)
#undef FUNCTION
} driver;

/* Has the library find the driver, the first time. */
const driver *driver_get(void);
/* A symbol of the same library; NULL where it has none. */
void *driver_symbol(const char *name);
/* Whether it is the stand-in, rather than the driver of a GPU. */
bool driver_is_stand_in(void);
/* Devices there are. */
int driver_devices(void);
/* For each ordinal that no device has: `EACH_MISSING_DEVICE(missing) { ... *missing ... }`. */
#define EACH_MISSING_DEVICE(missing)                                                                 \
    for (const int *missing = driver_missing_devices(), *end_ = missing + NUM_MISSING_DEVICES;       \
         missing < end_; missing++)
#define NUM_MISSING_DEVICES 4
const int *driver_missing_devices(void);

/* A call that must work: `CU(cuMemAlloc_v2(&address, size))`. */
#define CU(call) driver_check(__FILE__, __LINE__, #call, driver_get()->call)
void driver_check(const char *file, int line, const char *call, CUresult result);

/* The current context of this thread; NULL for none. */
CUcontext current_context(void);
/* Whether a device's primary context is active: somebody made it. */
bool has_primary_context(int device);

/* CU_MEMORYTYPE_* of an address; 0 where the driver knows no memory. */
unsigned driver_memory_type(uint64_t address);

/* Keeps a device's primary context alive, and so what is allocated in it. */
void retain_device(int device);
void release_device(int device);
/* Keeps that of device 0 for as long as the process lives: to make a context takes a GPU longer than all else
   in many a test. */
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
