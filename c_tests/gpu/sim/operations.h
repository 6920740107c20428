// SPDX-License-Identifier: Apache-2.0
// Every operation that calls the driver, as one function each: made, used, given back.
#pragma once

#include "harness.h"

typedef struct operation {
    const char *name;
    /* Does everything with the error slot, and answers the first status that is not OK, the library's own
       objects given back in any case. */
    kvmem_status (*run)(void);
    kvmem_status expected; /* where nothing is made to fail */
} operation;

/* Defines an operation of one call, for those that differ only in values. */
#define OPERATION(name, call)                                                                        \
    static kvmem_status name(void) {                                                                 \
        return call;                                                                                 \
    }

extern const operation operations[];
extern const size_t num_operations;

/* What the operations use of the engine's. */
void operations_open(void);
void operations_close(void);
