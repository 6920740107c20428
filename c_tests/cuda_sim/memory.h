// SPDX-License-Identifier: Apache-2.0
// Backing memory, independent of addresses: a memfd that other processes can open.
#pragma once

#include "state.h"

/* Prefixes of the names of memory files in /proc: of all, and of those of VMM handles. */
#define MEMORY_FILE "/memfd:kvmem-sim-"
#define MEMORY_FILE_OF_HANDLE MEMORY_FILE "vmm-"

typedef enum memory_kind { OF_ALLOCATION, OF_HANDLE } memory_kind;

/* Creates memory at the location of `prop`. Fails with OUT_OF_MEMORY if the device has not enough memory. */
CUresult memory_create(memory_kind kind, size_t size, const CUmemAllocationProp *prop, memory **created);
/* Creates memory from an open file, and takes ownership of the file descriptor. It is not part of `used` of a
   device. */
CUresult memory_open(int fd, size_t size, const CUmemAllocationProp *prop, CUdevice owner, memory **opened);
/* Destroys the memory if no handle refers to it and no span maps it. */
void memory_destroy_if_unused(memory *memory);

/* Returns the memory of a handle; NULL if the handle does not exist or has no references. */
memory *memory_find(CUmemGenericAllocationHandle handle);
/* As memory_find, but ends the process if there is none, because the real driver crashes. */
memory *memory_of_handle(CUmemGenericAllocationHandle handle);

/* Reads the target of /proc/self/fd/N. */
void memory_file_name(int fd, char *name, size_t size);
