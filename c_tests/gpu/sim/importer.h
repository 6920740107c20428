// SPDX-License-Identifier: Apache-2.0
// A simulated importer: the file lock by which a region's owner detects an importer.
#pragma once

#include "harness.h"

/* Locks the control block of a shared region, as an importer does. */
int importer_begin(const kvmem_share *share);
/* Releases the lock, also for processes that have inherited it. */
void importer_unlock(int importer);
void importer_end(int importer);

/* The files of control blocks that this process has open. */
#define IMPORTER_MAX_FILES 8
typedef struct block_files {
    int fds[IMPORTER_MAX_FILES];
    int kept[IMPORTER_MAX_FILES];
    size_t count;
} block_files;
/* Makes queries of their locks fail, until block_files_enable_locks. */
void block_files_disable_locks(block_files *files);
void block_files_enable_locks(const block_files *files);
