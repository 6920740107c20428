// SPDX-License-Identifier: Apache-2.0
// A file that another process serves (FUSE), and whose attributes that process may keep to itself: fstat then
// waits.
#pragma once

#include "harness.h"

/* Each program that has such files has this line. */
#define SERVED_FILE_ROLE USES_ROLE(served_file, served_file_role)
void served_file_role(int socket);

/* Skips the case if this process may not mount. */
void require_served_files(void);
/* Starts the file's server, and opens the file to read and write. When the server ends, nobody waits for
 * it. */
peer served_file_start(uint64_t size, int *fd);
/* From here the attributes are told so many times; who then asks waits. */
void served_file_stall_after(const peer *server, uint64_t answers);
/* Whether somebody waits for them. */
bool served_file_stalls(const peer *server);
/* Tells them to whoever waits, and to all later. */
void served_file_go_on(const peer *server);
