// SPDX-License-Identifier: Apache-2.0
// An S3-compatible server on loopback, which the first case that needs it starts: it takes seconds. It ends
// with the process.
#pragma once

#include "harness.h"

/* The server, which replies to the lines that s3_server.py lists. */
extern python object_store;

/* What is missing to run it; NULL if nothing is. */
const char *object_store_lacks(void);
/* Starts it, unless it runs. */
void object_store_start(void);
/* Kills it, and starts another one at the same address, which is empty. */
void object_store_kill(void);
void object_store_restart(void);
/* Creates an OBJ backend for its bucket; the second one for a bucket and an endpoint, NULL for those of the
   server. */
void object_store_create_backend(kvmem_agent *agent);
void object_store_create_backend_for(kvmem_agent *agent, const char *bucket, const char *endpoint);
