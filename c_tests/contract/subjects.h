// SPDX-License-Identifier: Apache-2.0
// The options structs of the header as entries of one table: valid options, and a call that takes them.
#pragma once

#include "contract.h"

typedef struct subject {
    const char *name;
    size_t size;
    size_t flags_at;
    void (*fill)(void *options);
    kvmem_status (*call)(const void *options); /* destroys what it creates; its error is the last one */
    uint64_t known_flags;                      /* UINT64_MAX: it has no flags */
    kvmem_status good_status;                  /* for valid options, with a GPU if it needs one */
    bool needs_gpu;
} subject;

extern const subject subjects[];
extern const size_t num_subjects;
extern world subjects_world; /* used by the calls; open it first */

const subject *subject_named(const char *name);
/* The status that valid options give on this machine, which may have no GPU. */
kvmem_status subject_good_status(const subject *subject);
/* Valid options in allocated memory, followed by `tail` zero bytes. */
unsigned char *subject_good_options(const subject *subject, size_t tail);
