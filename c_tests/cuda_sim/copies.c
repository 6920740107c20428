// SPDX-License-Identifier: Apache-2.0
// Single copies. The driver must know an address that the function's name calls device memory.
#include "copying.h"
#include "cuda_sim.h"

#include <stdatomic.h>

static _Atomic uint64_t copied;

uint64_t sim_copied(void) { return copied; }

static CUdeviceptr address_of(const void *host) { return (CUdeviceptr)(uintptr_t)host; }

CUresult cuMemcpy(CUdeviceptr destination, CUdeviceptr source, size_t size) {
    DRIVER_CALL(cuMemcpy);
    return copy_now(&(copy){destination, source, ANY, ANY, size});
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr destination, const void *source, size_t size) {
    DRIVER_CALL(cuMemcpyHtoD_v2);
    return copy_now(&(copy){destination, address_of(source), KNOWN, ANY, size});
}

CUresult cuMemcpyDtoH_v2(void *destination, CUdeviceptr source, size_t size) {
    DRIVER_CALL(cuMemcpyDtoH_v2);
    return copy_now(&(copy){address_of(destination), source, ANY, KNOWN, size});
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr destination, CUdeviceptr source, size_t size) {
    DRIVER_CALL(cuMemcpyDtoD_v2);
    return copy_now(&(copy){destination, source, KNOWN, KNOWN, size});
}

CUresult cuMemcpyAsync(CUdeviceptr destination, CUdeviceptr source, size_t size, CUstream stream) {
    DRIVER_CALL(cuMemcpyAsync);
    copied += size;
    return copy_on_stream(&(copy){destination, source, ANY, ANY, size}, stream, &this_call);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr destination, const void *source, size_t size, CUstream stream) {
    DRIVER_CALL(cuMemcpyHtoDAsync_v2);
    return copy_on_stream(&(copy){destination, address_of(source), KNOWN, ANY, size}, stream, &this_call);
}

CUresult cuMemcpyDtoHAsync_v2(void *destination, CUdeviceptr source, size_t size, CUstream stream) {
    DRIVER_CALL(cuMemcpyDtoHAsync_v2);
    return copy_on_stream(&(copy){address_of(destination), source, ANY, KNOWN, size}, stream, &this_call);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr destination, CUdeviceptr source, size_t size, CUstream stream) {
    DRIVER_CALL(cuMemcpyDtoDAsync_v2);
    return copy_on_stream(&(copy){destination, source, KNOWN, KNOWN, size}, stream, &this_call);
}
