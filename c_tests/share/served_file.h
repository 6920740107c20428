// SPDX-License-Identifier: Apache-2.0
// A file that another process serves with FUSE. That process can withhold the attributes of the file or its
// bytes; fstat or reads then block.
#pragma once

#include "harness.h"

/* Each program that has such files has this line. */
#define SERVED_FILE_ROLE USES_ROLE(served_file, served_file_role)
void served_file_role(int socket);

/* Skips the case if this process may not mount. */
void require_served_files(void);
/* Starts the server of the file, and opens the file for reading and writing. When the server ends, all
   waiting calls return. */
peer served_file_start(uint64_t size, int *fd);
/* The server replies to this number of requests for attributes. Later requests wait. */
void served_file_stall_after(const peer *server, uint64_t replies);
/* The server replies to no request for bytes from now on. */
void served_file_withhold_bytes(const peer *server);
/* Whether a request waits. */
bool served_file_stalls(const peer *server);
/* Replies to the waiting requests, and to all later ones. All bytes are 0. */
void served_file_resume(const peer *server);
