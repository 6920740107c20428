/* SPDX-License-Identifier: Apache-2.0 */
/* The objects, tokens and files of a case. */
#ifndef WORLD_H
#define WORLD_H

#include "step.h"

enum type { REGION, LAYOUT, TRANSFER, QUEUE, SHARE, BROKER, AGENT, REGISTRATION, STORE, LEASE };

union handle {
    void *any;
    kvmem_region *region;
    kvmem_layout *layout;
    kvmem_transfer *transfer;
    kvmem_queue *queue;
    kvmem_share *share;
    kvmem_broker *broker;
    kvmem_agent *agent;
    kvmem_registration *registration;
    kvmem_store *store;
    kvmem_lease *lease;
};

void world_begin(void);
void world_end(void);

/* The name of the object that a step creates, which must be free. */
const char *new_name(const struct step *step);
/* Adds a handle if the call that created it has succeeded. Returns its status. */
kvmem_status add_object(const char *name, enum type type, union handle handle, kvmem_status status);
void *object(const char *name, enum type type);
void destroy_object(const char *name);

/* "@name" is in the folder of the case; the buffer is valid until the next call. */
const char *path_of(const char *text);
/* A path as tables write it. */
const char *shown_path(const char *path);

kvmem_token *token_of(const char *name);

/* Bytes by name, such as metadata: values, not objects. */
void store_bytes(const char *name, const void *bytes, size_t size);
const void *find_bytes(const char *name, size_t *size);

/* Memory that kvmem adopted, and its release callback. */
void *adopt_memory(const char *name, size_t size, void **user_data);
void forget_memory(const char *name);
void released(void *user_data);
void await_release(const char *name);

/* Runs the call of a step. */
kvmem_status run_call(struct step *step, kvmem_error **error);

#endif
