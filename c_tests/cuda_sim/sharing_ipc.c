// SPDX-License-Identifier: Apache-2.0
// Legacy IPC: 64 bytes that name a process, and the file of an allocation there, which another process opens.
#include "call.h"
#include "contexts.h"
#include "devices.h"
#include "memory.h"
#include "spans.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x6d69732d6d656d76)

/* What the 64 bytes hold. */
typedef struct ipc_name {
    uint64_t magic;
    uint64_t process_start;
    uint64_t file; /* its inode */
    uint64_t size;
    int32_t process;
    int32_t fd;
    int32_t physical_device;
    int32_t zero;
} ipc_name;
_Static_assert(sizeof(ipc_name) <= sizeof(CUipcMemHandle), "an IPC handle has 64 bytes");

/* When a process began, so that no later one of the same number is taken for it; 0 when it has ended. */
static uint64_t process_start(pid_t process) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)process);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return 0;
    }
    char text[1024];
    const size_t length = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[length] = '\0';
    const char *after_name = strrchr(text, ')');
    char status = 'Z';
    unsigned long long start = 0;
    const char *fields = ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu";
    const bool is_read = after_name != NULL && sscanf(after_name, fields, &status, &start) == 2;
    return is_read && strchr("ZX", status) == NULL ? start : 0;
}

static uint64_t inode(int fd) {
    struct stat file;
    return fstat(fd, &file) == 0 ? (uint64_t)file.st_ino : 0;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address) {
    DRIVER_CALL(cuIpcGetMemHandle);
    const span *known = span_at(address);
    if (handle == NULL || known == NULL || known->kind != SPAN_ALLOCATION) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const ipc_name name = {
        .magic = MAGIC,
        .process_start = process_start(getpid()),
        .file = inode(known->memory->fd),
        .size = known->size,
        .process = (int32_t)getpid(),
        .fd = known->memory->fd,
        .physical_device = sim.devices[known->memory->owner].physical,
    };
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &name, sizeof(name));
    return CUDA_SUCCESS;
}

static span *find_opened(const ipc_name *name) {
    EACH(span, known, sim.spans) {
        if (known->kind == SPAN_IPC && inode(known->memory->fd) == name->file) {
            return known;
        }
    }
    return NULL;
}

/* The file in the process that the name states; below 0 when it has freed the memory. */
static int open_file(const ipc_name *name) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)name->process, (int)name->fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && inode(fd) != name->file) {
        close(fd);
        return -1;
    }
    return fd;
}

static CUresult open_memory(const ipc_name *name, span **opened) {
    const CUdevice owner = device_of_physical(name->physical_device);
    if (owner == NO_ORDINAL) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (!device_reaches(context_current()->device, owner)) {
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    }
    const int fd = open_file(name);
    if (fd < 0) {
        return CUDA_ERROR_NOT_PERMITTED;
    }
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, owner},
    };
    memory *behind = NULL;
    const CUresult result = memory_open(fd, name->size, &prop, owner, &behind);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    void *start = map_untouchable(NULL, behind->size, behind->fd);
    if (start == MAP_FAILED) {
        memory_destroy_if_unused(behind);
        return CUDA_ERROR_MAP_FAILED;
    }
    *opened = span_add(SPAN_IPC, (uintptr_t)start, behind->size, behind, context_current());
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags) {
    DRIVER_CALL(cuIpcOpenMemHandle_v2);
    ipc_name name;
    memcpy(&name, &handle, sizeof(name));
    if (address == NULL || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || name.magic != MAGIC) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (name.process == getpid()) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (process_start(name.process) != name.process_start) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    span *opened = find_opened(&name);
    if (opened == NULL) {
        const CUresult result = open_memory(&name, &opened);
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
    opened->openings++;
    *address = opened->start;
    return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
    DRIVER_CALL(cuIpcCloseMemHandle);
    span *opened = span_starting(SPAN_IPC, address);
    if (opened == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    opened->openings--;
    if (opened->openings == 0) {
        span_remove(opened);
    }
    return RELEASED(CUDA_SUCCESS);
}
