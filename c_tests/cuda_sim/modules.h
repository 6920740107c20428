// SPDX-License-Identifier: Apache-2.0
// Code that was loaded into contexts.
#pragma once

#include "state.h"

/* Its kernels are told by their addresses: one for each name it has been asked for. */
typedef struct CUmod_st {
    node node;
    context *context;
    char *text; /* the PTX */
    struct CUfunc_st {
        struct CUmod_st *module;
        /* Which one it is; another the stand-in can't run. */
        enum { KERNEL_OTHER, KERNEL_COPY, KERNEL_ROWS, KERNEL_CHECKSUM } kind;
    } function;
} module;

/* Destroys all that belong to a context, and answers how many. */
uint64_t modules_destroy_of(const context *ended);
