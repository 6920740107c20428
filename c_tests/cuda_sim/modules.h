// SPDX-License-Identifier: Apache-2.0
// Code that was loaded into contexts.
#ifndef CUDA_SIM_MODULES_H
#define CUDA_SIM_MODULES_H

#include "state.h"

/* What the stand-in knows to run. */
enum kernel { KERNEL_OTHER, KERNEL_COPY, KERNEL_COPY_LARGE, KERNEL_CHECKSUM, KERNELS };

/* Its kernels are told by their addresses: one of each kind. */
typedef struct CUmod_st {
    node node;
    context *context;
    char *text; /* the PTX */
    struct CUfunc_st {
        struct CUmod_st *module;
        enum kernel kind;
    } functions[KERNELS];
} module;

/* Destroys all that belong to a context, and answers how many. */
uint64_t modules_destroy_of(const context *ended);

#endif
