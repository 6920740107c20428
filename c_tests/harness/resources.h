// SPDX-License-Identifier: Apache-2.0
// Resources of the process: open files, mappings, and scratch directories that are removed at the end.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

/* Files that are open in this process, except those that the C library opens briefly by itself. */
size_t count_open_files(void);
/* Checks that the same number is open at the end of the scope. */
#define KEEPS_FILES CLEANUP(check_files_kept) const files_kept files_kept_ = {__FILE__, __LINE__, count_open_files()}
typedef struct files_kept {
    const char *file;
    int line;
    size_t count;
} files_kept;
void check_files_kept(const files_kept *before);
size_t count_mappings(void);
/* Mappings of files, including memory files: without heaps, stacks and mappings of a sanitizer. */
size_t count_file_mappings(void);
bool is_mapped(uint64_t address);
/* Whether the mapping at an address has a flag of two letters: VmFlags in /proc/self/smaps. */
bool mapping_has_flag(uint64_t address, const char *flag);
/* Resident pages of [address, address + size). */
size_t count_resident_pages(uint64_t address, size_t size);
/* Limits the address space to what is in use and this much more. Returns the limit before. */
struct rlimit limit_addresses(uint64_t more);
/* Limits open files to those that are open. Returns the limit before. */
struct rlimit forbid_open_files(void);
size_t count_directory_entries(const char *directory);
/* Pages of 2 MiB that are free, or that the kernel would add. */
uint64_t ready_huge_pages(void);

/* A new directory below `parent`, with its path in `path`. If a case failed, its directories are removed
   after it, others at the end of the program, so that several cases can share one. */
typedef struct scratch {
    char path[128];
} scratch;
scratch scratch_create(const char *parent);
/* The path of a file in it; the string is valid until the next call. */
const char *scratch_file(const scratch *directory, const char *name);
void scratch_remove(const scratch *directory);
void scratch_remove_all(void);
/* A directory below temporary_directory() until the end of the scope: `SCRATCH(directory);`. */
#define SCRATCH(directory) CLEANUP(scratch_remove) const scratch directory = scratch_create(temporary_directory())
/* The path of a file in a new directory: `SCRATCH_FILE(path, "cache");`. */
#define SCRATCH_FILE(path, name)                                                                     \
    SCRATCH(directory_of_##path);                                                                    \
    char path[160];                                                                                  \
    snprintf(path, sizeof(path), "%s", scratch_file(&directory_of_##path, name))

void write_file(const char *path, const void *data, size_t size);
uint64_t file_length(const char *path);
/* The directory of temporary files: $TMPDIR, or /tmp. */
const char *temporary_directory(void);
