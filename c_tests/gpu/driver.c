// SPDX-License-Identifier: Apache-2.0
// Looks the functions up in the loaded library, and wraps the most frequent calls.
#include "driver.h"

#include <dlfcn.h>

static void *library;
static driver functions;

static void *find_library(void) {
    GET(kvmem_cuda_info, info, kvmem_cuda_get_info);
    void *found = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (found == NULL) FAIL("kvmem reports a driver, but libcuda.so.1 is not loaded");
    return found;
}

/* Copies the bytes of the pointer: C has no conversion from a pointer to data to a pointer to a function. */
static void look_up(void *found, const char *name, void *function) {
    void *symbol = dlsym(found, name);
    if (symbol == NULL && strcmp(name, "cuMemcpyBatchAsync") != 0) { /* optional */
        FAIL("the driver has no %s", name);
    }
    memcpy(function, &symbol, sizeof(symbol));
}

const driver *driver_get(void) {
    if (library == NULL) {
        void *found = find_library();
#define FUNCTION(name, need, manner, parameters) look_up(found, #name, &functions.name);
        CUDA_FUNCTIONS(FUNCTION)
#undef FUNCTION
        library = found;
    }
    return &functions;
}

void *driver_symbol(const char *name) {
    driver_get();
    return dlsym(library, name);
}

int driver_devices(void) {
    GET(kvmem_cuda_info, info, kvmem_cuda_get_info);
    return info.device_count;
}

const int *driver_missing_devices(void) {
    static int missing[NUM_MISSING_DEVICES] = {0, -1, INT32_MAX, INT32_MIN};
    missing[0] = driver_devices();
    return missing;
}

bool driver_is_stand_in(void) { return driver_symbol("sim_reset") != NULL; }

bool driver_leaves_out(size_t number) { return !driver_is_stand_in() && number % 5 != 0; }

void driver_check(const char *file, int line, const char *call, CUresult result) {
    if (result != CUDA_SUCCESS) {
        const char *name = NULL;
        driver_get()->cuGetErrorName(result, &name);
        test_fail(file, line, "%s: the driver returned %d, %s", call, (int)result, name ? name : "no name");
    }
}

CUcontext current_context(void) {
    CU_GET(CUcontext, context, cuCtxGetCurrent(&context));
    return context;
}

bool has_primary_context(int device) {
    int active = 0;
    CU_GET(unsigned, flags, cuDevicePrimaryCtxGetState(device, &flags, &active));
    return active != 0;
}

unsigned driver_memory_type(uint64_t address) {
    unsigned type = 0;
    const CUresult result =
        driver_get()->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
    return result == CUDA_SUCCESS ? type : 0;
}

void retain_device(int device) {
    CU_GET(CUcontext, context, cuDevicePrimaryCtxRetain(&context, device));
}

void release_device(int device) { CU(cuDevicePrimaryCtxRelease_v2(device)); }

int retain_for_scope(int device) {
    retain_device(device);
    return device;
}

void release_retained(const int *device) { release_device(*device); }

static bool is_kept;

void keep_device(void) {
    if (!is_kept) retain_device(0);
    is_kept = true;
}

bool device_is_kept(void) { return is_kept; }

void enter_device(int device) {
    CU_GET(CUcontext, context, cuDevicePrimaryCtxRetain(&context, device));
    CU(cuCtxPushCurrent_v2(context));
}

void leave_device(int device) {
    CU_GET(CUcontext, context, cuCtxPopCurrent_v2(&context));
    release_device(device);
}

uint64_t free_memory(int device) {
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    CU_ON(device, cuMemGetInfo_v2(&free_bytes, &total_bytes));
    return free_bytes;
}

void write_device(int device, uint64_t to, const void *from, size_t size) {
    if (size == 0) return;
    enter_device(device);
    CU(cuMemcpyHtoD_v2(to, from, size));
    CU(cuStreamSynchronize(NULL)); /* a copy from pageable memory may return before it is complete */
    leave_device(device);
}

void read_device(int device, void *to, uint64_t from, size_t size) {
    if (size == 0) return;
    CU_ON(device, cuMemcpyDtoH_v2(to, from, size));
}
