// SPDX-License-Identifier: Apache-2.0
// Checks of driver results, and objects for tests.
#include "driver_test.h"

#include "cuda_sim.h"

#include <signal.h>

/* A real driver has no such function. */
#pragma weak sim_live

void check_driver(const char *file, int line, const char *call, CUresult got, CUresult expected) {
    if (got != expected) {
        const char *got_name = "?";
        const char *expected_name = "?";
        cuGetErrorName(got, &got_name);
        cuGetErrorName(expected, &expected_name);
        test_fail(file, line, "%s: expected %s, got %d %s", call, expected_name, (int)got, got_name);
    }
}

CUcontext open_device(CUdevice device) {
    CU(cuInit(0));
    CU_GET(CUcontext, context, cuDevicePrimaryCtxRetain(&context, device));
    CU(cuCtxPushCurrent_v2(context));
    return context;
}

void close_device(CUdevice device) {
    CU(cuCtxPopCurrent_v2(NULL));
    CU(cuDevicePrimaryCtxRelease_v2(device));
    check_nothing_left();
}

CUdevice open_for_scope(CUdevice device) {
    open_device(device);
    return device;
}

void close_opened(const CUdevice *device) { close_device(*device); }

CUresult init_for_scope(void) {
    CU(cuInit(0));
    return CUDA_SUCCESS;
}

void check_left(const CUresult *initialised) {
    (void)initialised;
    check_nothing_left();
}

CUstream begin_stream(unsigned flags) {
    CU_GET(CUstream, stream, cuStreamCreate(&stream, flags));
    return stream;
}

void end_stream(const CUstream *stream) { CU(cuStreamDestroy_v2(*stream)); }

CUevent begin_event(unsigned flags) {
    CU_GET(CUevent, event, cuEventCreate(&event, flags));
    return event;
}

void end_event(const CUevent *event) { CU(cuEventDestroy_v2(*event)); }

void end_memory(const CUdeviceptr *address) { CU(cuMemFree_v2(*address)); }

void end_handle(const CUmemGenericAllocationHandle *handle) { CU(cuMemRelease(*handle)); }

void end_mapping(const mapping *mapping) { unmap_and_free(mapping->address, mapping->size); }

sim_counts live_objects(void) {
    sim_counts counts;
    sim_live(&counts);
    return counts;
}

void check_nothing_left(void) {
    if (sim_live == NULL) return;
    const sim_counts counts = live_objects();
    const sim_counts nothing = {.lost_with_context = counts.lost_with_context};
    if (memcmp(&counts, &nothing, sizeof(counts)) != 0) {
        const uint64_t *numbers = (const uint64_t *)&counts;
        for (size_t i = 0; i < sizeof(counts) / sizeof(*numbers); i++) {
            if (numbers[i] != 0)
                FAIL("count %zu of sim_counts is %llu instead of 0", i, (unsigned long long)numbers[i]);
        }
    }
}

CUmemAllocationProp device_prop(CUdevice device) {
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
    };
    return prop;
}

CUmemGenericAllocationHandle create_handle(CUdevice device, size_t size) {
    const CUmemAllocationProp prop = device_prop(device);
    CU_GET(CUmemGenericAllocationHandle, handle, cuMemCreate(&handle, size, &prop, 0));
    return handle;
}

CUmemAccessDesc access_for(CUdevice device, CUmemAccess_flags flags) {
    return (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};
}

CUdeviceptr reserve(size_t size) {
    CU_GET(CUdeviceptr, address, cuMemAddressReserve(&address, size, 0, 0, 0));
    return address;
}

CUdeviceptr map_fresh(CUdevice device, size_t size) {
    const CUmemGenericAllocationHandle handle = create_handle(device, size);
    const CUdeviceptr address = reserve(size);
    const CUmemAccessDesc access = access_for(device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CU(cuMemMap(address, size, 0, handle, 0));
    CU(cuMemSetAccess(address, size, &access, 1));
    CU(cuMemRelease(handle));
    return address;
}

void unmap_and_free(CUdeviceptr address, size_t size) {
    CU(cuMemUnmap(address, size));
    CU(cuMemAddressFree(address, size));
}

CUdeviceptr allocate_filled(size_t size, unsigned char value) {
    CU_GET(CUdeviceptr, address, cuMemAlloc_v2(&address, size));
    CU(cuMemsetD8_v2(address, value, size));
    CU(cuCtxSynchronize()); /* non-blocking streams do not wait for the fill */
    return address;
}

void check_device_filled(CUdeviceptr address, unsigned char value, size_t size) {
    unsigned char *copy = test_allocate(size);
    CU(cuMemcpyDtoH_v2(copy, address, size));
    CHECK_FILLED(copy, value, size);
    free(copy);
}

void check_unknown(CUdeviceptr address) {
    int type = 0;
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE,
              cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
}

void check_inaccessible(CUdeviceptr address) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        test_leave_cases();
        signal(SIGSEGV, SIG_DFL);
        *(volatile unsigned char *)POINTER(address) = 1;
        _exit(EXIT_SUCCESS);
    }
    child_is_ended_by(child, SIGSEGV);
}
