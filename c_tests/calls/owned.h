// SPDX-License-Identifier: Apache-2.0
// Memory and paths that the fuzzer owns and passes to the library: memory to adopt, and paths in its own
// directory.
#pragma once

#include "fuzz.h"

/* Host memory of whole pages, filled with zeroes. */
void *owned_memory(uint64_t size);
void owned_memory_free(void *memory, uint64_t size);
/* Options to adopt memory that the release callback unmaps. Using it after that crashes. */
kvmem_adopt_options owned_adopt_options(fuzz *fuzz);
/* The same with GPU memory. */
kvmem_adopt_options owned_device_options(fuzz *fuzz, int32_t device);
/* A part of a memory file, which the caller closes. */
kvmem_adopt_memfd_options owned_file_options(fuzz *fuzz);
/* The region was not created: unmaps the memory. */
void owned_not_adopted(const kvmem_adopt_options *options);
/* Number of adopted allocations that were not released yet. */
uint64_t owned_releases_due(void);

/* One of a few paths. The text lives as long as the process. */
const char *owned_file_path(fuzz *fuzz);
const char *owned_socket_path(fuzz *fuzz);
/* A folder for directories of agents. */
const char *owned_folder_path(void);
const char *owned_directory(void);
/* Creates the directory, and sets $TMPDIR to it. */
void owned_open(void);
/* Removes the named files that a sequence has left. */
void owned_remove_files(void);
/* Removes the directory. */
void owned_close(void);
