// SPDX-License-Identifier: Apache-2.0
// Memory as such, before it has an address: a file in memory that other processes can open too.
#pragma once

#include "state.h"

/* What the name of a file of ours begins with, as /proc shows it, and what follows in that of a handle. */
#define MEMORY_FILE "/memfd:kvmem-sim-"
#define MEMORY_FILE_OF_HANDLE MEMORY_FILE "vmm-"

typedef enum memory_kind { OF_ALLOCATION, OF_HANDLE } memory_kind;

/* Memory of a device or, where the location says so, of the host. OUT_OF_MEMORY when a device has no more. */
CUresult memory_create(memory_kind kind, size_t size, const CUmemAllocationProp *prop, memory **created);
/* Memory of an open file, which the memory keeps and closes. It counts towards no device. */
CUresult memory_open(int fd, size_t size, const CUmemAllocationProp *prop, CUdevice owner, memory **opened);
/* The end, once nobody refers to it and no addresses show it. */
void memory_destroy_if_unused(memory *memory);

/* By its handle; NULL when nobody refers to one of this number. */
memory *memory_find(CUmemGenericAllocationHandle handle);
/* The same where the real driver crashes instead. */
memory *memory_of_handle(CUmemGenericAllocationHandle handle);

/* Where /proc says an open file of this process leads. */
void memory_file_name(int fd, char *name, size_t size);
