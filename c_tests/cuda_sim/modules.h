// SPDX-License-Identifier: Apache-2.0
// Modules: code that was loaded into contexts, and its compilation.
#pragma once

#include "state.h"

/* Its functions share one object, because the library gets one function per module. */
typedef struct CUmod_st {
    node node;
    context *context;
    char *text; /* the PTX */
    struct CUfunc_st {
        struct CUmod_st *module;
        /* The stand-in cannot run KERNEL_OTHER. */
        enum { KERNEL_OTHER, KERNEL_COPY, KERNEL_ROWS, KERNEL_TRANSPOSE, KERNEL_VECTORS,
              KERNEL_CHECKSUM } kind;
    } function;
} module;

/* A compilation. The code is the PTX. */
typedef struct CUlinkState_st {
    node node;
    char *text;
} linker;

/* Destroys all modules of a context, and returns their number. */
uint64_t modules_destroy_of(const context *ended);
