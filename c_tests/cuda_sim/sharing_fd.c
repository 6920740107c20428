// SPDX-License-Identifier: Apache-2.0
// Memory handles that other processes import: as file descriptors of the memory and, if enabled, as fabric
// handles. The name of the file contains the location of the memory, and nothing else of its properties.
#include "call.h"
#include "devices.h"
#include "memory.h"
#include "sharing_fabric.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The error that the driver returns for a descriptor that it did not export. */
#define NOT_OURS CUDA_ERROR_UNKNOWN

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
    DRIVER_CALL(cuMemExportToShareableHandle);
    INVALID_IF(shareable == NULL || flags != 0);
    const memory *exported = memory_of_handle(handle);
    const bool was_requested = (exported->prop.requestedHandleTypes & (unsigned)type) != 0;
    INVALID_IF(!was_requested);
    if (type == CU_MEM_HANDLE_TYPE_FABRIC) return fabric_export(exported, shareable);
    INVALID_IF(type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    const int fd = fcntl(exported->fd, F_DUPFD_CLOEXEC, 0);
    RETURN_IF(fd < 0, CUDA_ERROR_OPERATING_SYSTEM);
    *(int *)shareable = fd;
    return CUDA_SUCCESS;
}

/* Reads the location from the name of the file. Returns false if it is not the file of a memory handle. */
static bool read_location(int fd, CUmemLocation *location) {
    char name[128];
    memory_file_name(fd, name, sizeof(name));
    const size_t length = strlen(MEMORY_FILE_OF_HANDLE);
    if (strncmp(name, MEMORY_FILE_OF_HANDLE, length) != 0) return false;
    if (sscanf(name + length, "dev%d", &location->id) == 1) {
        location->type = CU_MEM_LOCATION_TYPE_DEVICE;
        return true;
    }
    location->type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    return sscanf(name + length, "numa%d", &location->id) == 1;
}

static CUresult import(int fd, CUmemGenericAllocationHandle *handle) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    if (!read_location(fd, &prop.location)) return NOT_OURS;
    CUdevice owner = NO_ORDINAL;
    if (prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        owner = prop.location.id = device_of_physical(prop.location.id);
        RETURN_IF(owner == NO_ORDINAL, CUDA_ERROR_INVALID_DEVICE);
    }
    struct stat file;
    const int own_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    RETURN_IF(own_fd < 0 || fstat(own_fd, &file) != 0, CUDA_ERROR_OPERATING_SYSTEM);
    TRY_GET(memory *, imported, memory_open(own_fd, (size_t)file.st_size, &prop, owner, &imported));
    imported->references = 1;
    *handle = imported->handle;
    return CUDA_SUCCESS;
}

static CUresult import_fabric(CUmemGenericAllocationHandle *handle, const void *shareable) {
    int fd = -1;
    TRY(fabric_open(shareable, &fd));
    const CUresult result = import(fd, handle);
    close(fd);
    return result;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
                                        CUmemAllocationHandleType type) {
    DRIVER_CALL(cuMemImportFromShareableHandle);
    INVALID_IF(handle == NULL);
    if (type == CU_MEM_HANDLE_TYPE_FABRIC) return import_fabric(handle, shareable);
    INVALID_IF(type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    return import((int)(intptr_t)shareable, handle);
}
