// SPDX-License-Identifier: Apache-2.0
// Files that another process has open. Handles of 64 bytes contain their identity.
#pragma once

#include <stdint.h>
#include <sys/types.h>

/* An open file of a process. Other processes can open it while it is open there. */
typedef struct foreign_file {
    uint64_t process_start;
    uint64_t inode;
    int32_t process;
    int32_t fd;
} foreign_file;

/* Returns the start time of a process, which distinguishes it from a later process with the same pid; 0 if it
   has ended. */
uint64_t process_start(pid_t process);
uint64_t inode_of(int fd);

/* Returns the identity of an open file of this process. */
foreign_file foreign_file_of(int fd);
/* Opens the file; returns -1 if its process has closed it or has ended. */
int foreign_file_open(const foreign_file *file);
