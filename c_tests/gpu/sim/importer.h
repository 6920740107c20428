// SPDX-License-Identifier: Apache-2.0
// An importer that is nothing but its lock: what a region's owner sees of one.
#pragma once

#include "harness.h"

/* Locks the control block of a shared region, as an importer of it does. */
int importer_begin(const kvmem_share *share);
/* Gives the lock back, also for those who have inherited it. */
void importer_unlock(int importer);
void importer_end(int importer);

/* The files of control blocks that this process has open. */
#define IMPORTER_MOST_FILES 8
typedef struct block_files {
    int fds[IMPORTER_MOST_FILES];
    int kept[IMPORTER_MOST_FILES];
    size_t count;
} block_files;
/* From here the kernel answers nothing about their locks. */
void block_files_break(block_files *files);
void block_files_mend(const block_files *files);
