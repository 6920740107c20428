// SPDX-License-Identifier: Apache-2.0
// Files that another process has open: what handles of 64 bytes stand for.
#pragma once

#include <stdint.h>
#include <sys/types.h>

/* An open file of a process, by which others find it as long as it is open there. */
typedef struct elsewhere {
    uint64_t process_start;
    uint64_t file; /* its inode */
    int32_t process;
    int32_t fd;
} elsewhere;

/* When a process began, so that no later one of the same number is taken for it; 0 when it has ended. */
uint64_t process_start(pid_t process);
uint64_t inode_of(int fd);

/* An open file of this process. */
elsewhere elsewhere_of(int fd);
/* Opens the file anew; below 0 when its process has closed it, or has ended. */
int elsewhere_open(const elsewhere *where);
