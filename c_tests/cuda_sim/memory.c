// SPDX-License-Identifier: Apache-2.0
// Creates, opens and destroys backing memory. The name of the file contains the owner, for processes that
// import it.
#include "memory.h"

#include "call.h"
#include "devices.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The smallest amount of device memory that an allocation uses. */
#define ALLOCATION_UNIT 512

static uint64_t cost(size_t size) {
    return ((uint64_t)size + ALLOCATION_UNIT - 1) / ALLOCATION_UNIT * ALLOCATION_UNIT;
}

static void name_file(char *name, size_t length, memory_kind kind, CUdevice owner, int numa_node) {
    const char *what = kind == OF_HANDLE ? "vmm" : "mem";
    if (owner == NO_ORDINAL) snprintf(name, length, "kvmem-sim-%s-numa%d", what, numa_node);
    else snprintf(name, length, "kvmem-sim-%s-dev%d", what, sim.devices[owner].physical);
}

static bool has_memory(CUdevice owner, size_t size) {
    return owner == NO_ORDINAL || (size <= sim.memory_per_device &&
                                   cost(size) <= sim.memory_per_device - sim.devices[owner].used);
}

CUresult memory_create(memory_kind kind, size_t size, const CUmemAllocationProp *prop, memory **created) {
    const bool on_device = prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    const CUdevice owner = on_device ? prop->location.id : NO_ORDINAL;
    RETURN_IF(!has_memory(owner, size), CUDA_ERROR_OUT_OF_MEMORY);
    char name[64];
    name_file(name, sizeof(name), kind, owner, prop->location.id);
    const int fd = memfd_create(name, MFD_CLOEXEC);
    RETURN_IF(fd < 0, CUDA_ERROR_OPERATING_SYSTEM);
    if (ftruncate(fd, (off_t)size) != 0) {
        close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    TRY(memory_open(fd, size, prop, owner, created));
    if (owner != NO_ORDINAL) {
        (*created)->is_accounted = true;
        sim.devices[owner].used += cost(size);
    }
    return CUDA_SUCCESS;
}

CUresult memory_open(int fd, size_t size, const CUmemAllocationProp *prop, CUdevice owner, memory **opened) {
    void *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (bytes == MAP_FAILED) {
        close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memory *made = list_add(&sim.memories, sizeof(*made));
    made->handle = next_number();
    made->prop = *prop;
    made->owner = owner;
    made->fd = fd;
    made->bytes = bytes;
    made->size = size;
    *opened = made;
    return CUDA_SUCCESS;
}

void memory_destroy_if_unused(memory *unused) {
    if (unused->references > 0 || unused->spans > 0) return;
    if (unused->is_accounted) sim.devices[unused->owner].used -= cost(unused->size);
    munmap(unused->bytes, unused->size);
    close(unused->fd);
    list_remove(&unused->node);
}

memory *memory_find(CUmemGenericAllocationHandle handle) {
    EACH(memory, known, sim.memories) {
        if (known->handle == handle && known->references > 0) return known;
    }
    return NULL;
}

memory *memory_of_handle(CUmemGenericAllocationHandle handle) {
    memory *found = memory_find(handle);
    if (found == NULL) sim_crash("0x%llx is not a memory handle, or a released one", handle);
    return found;
}

void memory_file_name(int fd, char *name, size_t size) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(path, name, size - 1);
    name[length < 0 ? 0 : length] = '\0';
}
