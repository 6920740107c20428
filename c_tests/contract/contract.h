// SPDX-License-Identifier: Apache-2.0
// Tests that misuse every function: calls that must fail, and one valid handle of each type.
#pragma once

#include "harness.h"

/* Initial value of outputs that a call must set or leave unchanged. */
#define POISON ((void *)(uintptr_t)0x5A5A5A5A5A5A5A5A)

/* The call fails with this status, with and without an error output. */
#define REFUSED(status, function, ...)                                                               \
    do {                                                                                             \
        EXPECT(status, function(__VA_ARGS__, ERR));                                                  \
        CHECK_EQ(function(__VA_ARGS__, NULL), status);                                               \
    } while (0)

#define INVALID(function, ...) REFUSED(KVMEM_STATUS_INVALID_ARGUMENT, function, __VA_ARGS__)
/* In a forked child, with a handle of its parent. */
#define FORKED(function, ...) REFUSED(KVMEM_STATUS_INVALID_STATE, function, __VA_ARGS__)

/* The same, and the output handle is NULL afterwards. */
#define REFUSED_NULLS(output, status, function, ...)                                                 \
    do {                                                                                             \
        (output) = POISON;                                                                           \
        EXPECT(status, function(__VA_ARGS__, ERR));                                                  \
        CHECK((output) == NULL);                                                                     \
        (output) = POISON;                                                                           \
        CHECK_EQ(function(__VA_ARGS__, NULL), status);                                               \
        CHECK((output) == NULL);                                                                     \
    } while (0)

#define INVALID_NULLS(output, function, ...)                                                         \
    REFUSED_NULLS(output, KVMEM_STATUS_INVALID_ARGUMENT, function, __VA_ARGS__)

/* The same, and the output struct or number is unchanged. */
#define REFUSED_KEEPS(output, status, function, ...)                                                 \
    do {                                                                                             \
        memset(&(output), 0x5A, sizeof(output));                                                     \
        REFUSED(status, function, __VA_ARGS__);                                                      \
        CHECK_FILLED(&(output), 0x5A, sizeof(output));                                               \
    } while (0)

#define INVALID_KEEPS(output, function, ...)                                                         \
    REFUSED_KEEPS(output, KVMEM_STATUS_INVALID_ARGUMENT, function, __VA_ARGS__)

/* One object of each type. `remote` is the layout of another agent in this process, `far`. */
typedef struct world {
    kvmem_agent *agent;
    kvmem_agent *far;
    kvmem_region *region;
    kvmem_region *file; /* a named file */
    kvmem_registration *registration;
    kvmem_lease *lease; /* of a block of `local` */
    kv_side local; /* without an agent */
    kv_side near;
    kv_side far_side;
    kvmem_layout *remote;
    kvmem_queue *queue;
    kvmem_transfer *transfer; /* near to remote, not submitted yet */
    kvmem_transfer *copy;     /* local to local, not submitted yet */
    kvmem_notifications *notifications;
    kvmem_blob *blob;
} world;

void world_open(world *world);
void world_close(world *world);

/* Valid options over a layout of one pair. */
kv_job world_job(void);
