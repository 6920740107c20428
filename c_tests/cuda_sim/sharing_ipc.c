// SPDX-License-Identifier: Apache-2.0
// Legacy IPC: 64 bytes that identify a process and the file of an allocation there, which another process
// opens.
#include "call.h"
#include "contexts.h"
#include "devices.h"
#include "foreign_file.h"
#include "memory.h"
#include "queue.h"
#include "spans.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x6d69732d6d656d76)

/* The contents of the 64 bytes. */
typedef struct ipc_name {
    uint64_t magic;
    uint64_t size;
    foreign_file file;
    int32_t physical_device;
    int32_t zero;
} ipc_name;
_Static_assert(sizeof(ipc_name) <= sizeof(CUipcMemHandle), "an IPC handle has 64 bytes");

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address) {
    DRIVER_CALL(cuIpcGetMemHandle);
    const span *known = span_at(address);
    INVALID_IF(handle == NULL || known == NULL || known->kind != SPAN_ALLOCATION || known->is_managed);
    const ipc_name name = {
        .magic = MAGIC,
        .size = known->size,
        .file = foreign_file_of(known->memory->fd),
        .physical_device = sim.devices[known->memory->owner].physical,
    };
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &name, sizeof(name));
    return CUDA_SUCCESS;
}

/* Each device of a process has its own mapping, which only its kernels can access. */
static span *find_opened(const ipc_name *name) {
    const CUdevice device = context_current()->device;
    EACH(span, known, sim.spans) {
        if (known->kind == SPAN_IPC && known->context->device == device &&
            inode_of(known->memory->fd) == name->file.inode) {
            return known;
        }
    }
    return NULL;
}

static CUresult open_memory(const ipc_name *name, span **opened) {
    const CUdevice owner = device_of_physical(name->physical_device);
    RETURN_IF(owner == NO_ORDINAL, CUDA_ERROR_INVALID_DEVICE);
    RETURN_IF(!device_reaches(context_current()->device, owner), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    const int fd = foreign_file_open(&name->file);
    RETURN_IF(fd < 0, CUDA_ERROR_NOT_PERMITTED);
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, owner},
    };
    TRY_GET(memory *, backing, memory_open(fd, name->size, &prop, owner, &backing));
    void *start = map_inaccessible(NULL, backing->size, backing->fd);
    if (start == MAP_FAILED) {
        memory_destroy_if_unused(backing);
        return CUDA_ERROR_MAP_FAILED;
    }
    *opened = span_add(SPAN_IPC, (uintptr_t)start, backing->size, backing, context_current());
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags) {
    DRIVER_CALL(cuIpcOpenMemHandle_v2);
    ipc_name name;
    memcpy(&name, &handle, sizeof(name));
    INVALID_IF(address == NULL || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || name.magic != MAGIC);
    RETURN_IF(name.file.process == getpid(), CUDA_ERROR_INVALID_CONTEXT);
    RETURN_IF(process_start(name.file.process) != name.file.process_start, CUDA_ERROR_INVALID_HANDLE);
    span *opened = find_opened(&name);
    if (opened == NULL) TRY(open_memory(&name, &opened));
    opened->openings++;
    *address = opened->start;
    return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
    DRIVER_CALL(cuIpcCloseMemHandle);
    span *opened = span_starting(SPAN_IPC, address);
    INVALID_IF(opened == NULL);
    queue_drain(opened->context);
    opened->openings--;
    if (opened->openings == 0) span_remove(opened);
    return RELEASED(CUDA_SUCCESS);
}
