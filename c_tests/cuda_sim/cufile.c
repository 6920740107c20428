// SPDX-License-Identifier: Apache-2.0
// A stand-in for cuFile, for NIXL's GDS plugins. It always copies through host memory, and does not report
// it. Environment variables:
// - CUFILE_ALLOW_COMPAT_MODE, as for cuFile: false or 0 if registering a file must fail without GDS;
// - KVMEM_SIM_CUFILE: "absent" if GDS is not supported, "wrong-write" or "wrong-read" to change a byte of
//   each write or read, "fails" if reads and writes fail, "waits" if each write waits until the variable has another
//   value.
#include "cuda_api.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define IO_NOT_SUPPORTED 5007
#define ALLOW_COMPAT_MODE 1

typedef struct CUfileError_t {
    int err;
    CUresult cu_err;
} CUfileError_t;

typedef struct CUfileDescr_t {
    int type;
    union {
        int fd;
        void *handle;
    } handle;
    const void *fs_ops;
} CUfileDescr_t;

typedef struct CUfileDrvProps_t {
    struct {
        unsigned int major_version;
        unsigned int minor_version;
        size_t poll_thresh_size;
        size_t max_direct_io_size;
        unsigned int dstatusflags;
        unsigned int dcontrolflags;
    } nvfs;
    unsigned int more[6];
} CUfileDrvProps_t;

static const CUfileError_t success = {0, CUDA_SUCCESS};
static bool allows_compat_mode;

static bool simulates(const char *what) {
    const char *value = getenv("KVMEM_SIM_CUFILE");
    return value != NULL && strcmp(value, what) == 0;
}

EXPORT CUfileError_t cuFileDriverOpen(void) {
    const char *value = getenv("CUFILE_ALLOW_COMPAT_MODE");
    allows_compat_mode = value == NULL || (strcmp(value, "false") != 0 && strcmp(value, "0") != 0);
    return success;
}

EXPORT CUfileError_t cuFileDriverClose_v2(void) { return success; }

EXPORT CUfileError_t cuFileDriverGetProperties(CUfileDrvProps_t *properties) {
    memset(properties, 0, sizeof(*properties));
    properties->nvfs.dcontrolflags = allows_compat_mode ? 1u << ALLOW_COMPAT_MODE : 0;
    return success;
}

EXPORT CUfileError_t cuFileHandleRegister(void **handle, const CUfileDescr_t *described) {
    if (simulates("absent") && !allows_compat_mode) return (CUfileError_t){IO_NOT_SUPPORTED, CUDA_SUCCESS};
    *handle = (void *)((intptr_t)described->handle.fd + 1);
    return success;
}

EXPORT void cuFileHandleDeregister(void *handle) { (void)handle; }

EXPORT CUfileError_t cuFileBufRegister(const void *memory, size_t size, int flags) {
    (void)memory;
    (void)size;
    (void)flags;
    return success;
}

EXPORT CUfileError_t cuFileBufDeregister(const void *memory) {
    (void)memory;
    return success;
}

static int file_of(void *handle) { return (int)((intptr_t)handle - 1); }

/* For any thread, with any current context. The copy is complete on return. */
static bool copy(CUdeviceptr to, CUdeviceptr from, size_t size, CUdeviceptr of_device) {
    CUcontext context = NULL;
    CUcontext popped = NULL;
    if (cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, of_device) != CUDA_SUCCESS ||
        cuCtxPushCurrent_v2(context) != CUDA_SUCCESS) {
        return false;
    }
    CUresult result = cuMemcpy(to, from, size);
    if (result == CUDA_SUCCESS) result = cuStreamSynchronize(CU_STREAM_LEGACY);
    cuCtxPopCurrent_v2(&popped);
    return result == CUDA_SUCCESS;
}

/* Direct I/O needs aligned memory. */
static unsigned char *bounce_buffer(size_t size) {
    void *memory = NULL;
    return posix_memalign(&memory, 4096, size) == 0 ? memory : NULL;
}

EXPORT ssize_t cuFileWrite(void *handle, const void *memory, size_t size, off_t offset, off_t memory_offset) {
    const CUdeviceptr from = (CUdeviceptr)(uintptr_t)memory + (CUdeviceptr)memory_offset;
    unsigned char *bounce = bounce_buffer(size);
    ssize_t moved = -1;
    while (simulates("waits")) usleep(1000);
    errno = EIO;
    if (bounce != NULL && !simulates("fails") && copy((CUdeviceptr)(uintptr_t)bounce, from, size, from)) {
        bounce[size / 2] ^= simulates("wrong-write");
        moved = pwrite(file_of(handle), bounce, size, offset);
    }
    free(bounce);
    return moved;
}

EXPORT ssize_t cuFileRead(void *handle, void *memory, size_t size, off_t offset, off_t memory_offset) {
    const CUdeviceptr to = (CUdeviceptr)(uintptr_t)memory + (CUdeviceptr)memory_offset;
    unsigned char *bounce = bounce_buffer(size);
    ssize_t moved = -1;
    errno = EIO;
    if (bounce != NULL && !simulates("fails")) {
        moved = pread(file_of(handle), bounce, size, offset);
        bounce[size / 2] ^= simulates("wrong-read");
        if (moved > 0 && !copy(to, (CUdeviceptr)(uintptr_t)bounce, (size_t)moved, to)) moved = -1;
    }
    free(bounce);
    return moved;
}
