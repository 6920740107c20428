// SPDX-License-Identifier: Apache-2.0
// Every options struct of the header as one kind of thing: how good ones look, and a call that takes them.
#pragma once

#include "contract.h"

typedef struct subject {
    const char *name;
    size_t size;
    void (*fill)(void *options);
    kvmem_status (*call)(const void *options); /* cleans up after itself; its error is the last one */
    uint64_t known_flags;                      /* UINT64_MAX: it has no flags */
    kvmem_status good_answer;                  /* to good options, where there is a GPU if it needs one */
    bool needs_gpu;
} subject;

extern const subject subjects[];
extern const size_t num_subjects;
extern world subjects_world; /* what the calls use; open it first */

const subject *subject_named(const char *name);
/* What good options are answered: on a machine without a GPU there is none to be had. */
kvmem_status subject_good_answer(const subject *subject);
/* Good options in memory of their own, with `tail` zeroed bytes behind them. */
unsigned char *subject_good_options(const subject *subject, size_t tail);
