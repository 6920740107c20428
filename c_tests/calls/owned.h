// SPDX-License-Identifier: Apache-2.0
// What the fuzzer itself owns and gives to the library: memory that is adopted, and paths in a directory of
// its own.
#pragma once

#include "fuzz.h"

/* Host memory of whole pages, filled with zeroes. */
void *owned_memory(uint64_t size);
void owned_memory_free(void *memory, uint64_t size);
/* Options that have a region adopt some, which is unmapped by its release callback; a use after that is a
 * crash. */
kvmem_adopt_options owned_adopt_options(fuzz *fuzz);
/* The same with memory of a GPU. */
kvmem_adopt_options owned_device_options(fuzz *fuzz, int32_t device);
/* A part of a memory file, which the caller closes. */
kvmem_adopt_file_options owned_file_options(fuzz *fuzz);
/* The region was not created: takes the memory back. */
void owned_not_adopted(const kvmem_adopt_options *options);
/* Memory that was adopted and not released yet. */
uint64_t owned_releases_due(void);

/* One of a few paths. The text lives as long as the process. */
const char *owned_file_path(fuzz *fuzz);
const char *owned_socket_path(fuzz *fuzz);
/* A folder for directories of agents. */
const char *owned_folder_path(void);
const char *owned_directory(void);
/* Makes the directory, which is also $TMPDIR from here on. */
void owned_open(void);
/* Removes the named files that a sequence has left, which are the caller's. */
void owned_remove_files(void);
/* Removes the directory. */
void owned_close(void);
