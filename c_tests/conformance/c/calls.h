/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of the tables, one file per noun, and what they have in common. */
#ifndef CALLS_H
#define CALLS_H

#include "../fields.h"
#include "world.h"

#include <kvmem/cuda.h>
#include <kvmem/nixl.h>

/* A call by its name in the tables. Lists end with an empty one. */
struct call {
    const char *name;
    kvmem_status (*run)(struct step *step, kvmem_error **error);
    /* Instead: creates an object of this type, which the step names. */
    kvmem_status (*create)(struct step *step, union handle *made, kvmem_error **error);
    enum type type;
};

extern const struct call region_calls[], gpu_calls[], layout_calls[], block_calls[], agent_calls[], transfer_calls[],
    share_calls[], store_calls[], simple_calls[]; /* the last one is generated */

/* A field as a result, and a key as a field, of the same name. */
#define NUMBER(object, field) add_number(step, #field, (object).field)
#define WORD(object, field, words) add_word(step, #field, (object).field, words)
#define SET(object, field) ((object).field = number_of(step, #field))

/* The paths of a file. path_of has one buffer, and a file has up to two paths. */
void set_paths(struct step *step, kvmem_disk_options *options, char paths[2][512]);

/* The text of a blob as a result, if the call that creates it succeeds. Destroys the blob. */
kvmem_status add_blob(struct step *step, const char *key, kvmem_blob *blob, kvmem_status status);
/* The bytes of a blob under the name that a key has, for a later step. Destroys the blob. */
kvmem_status store_blob(struct step *step, const char *key, kvmem_blob *blob, kvmem_status status);
/* Bytes that an earlier step has stored under the name that a key has; `flip` inverts one of them. */
const void *stored_bytes(struct step *step, const char *key, size_t *size);

#endif
