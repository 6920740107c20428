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

/* Defines an operation that succeeds if nothing is made to fail: `OPERATION(a_thing) { ... }`. */
#define OPERATION(name) REFUSED_OPERATION(name, KVMEM_STATUS_OK)
/* One that ends with this status. */
#define REFUSED_OPERATION(name, expected)                                                            \
    static kvmem_status name(void);                                                                  \
    TEST_REGISTER(name, operation_add((operation){#name, name, expected}))                           \
    static kvmem_status name(void)
/* The same of one call, for those that differ only in values. */
#define OPERATION_CALL(name, call) REFUSED_OPERATION_CALL(name, KVMEM_STATUS_OK, call)
#define REFUSED_OPERATION_CALL(name, expected, call)                                                 \
    REFUSED_OPERATION(name, expected) {                                                              \
        return call;                                                                                 \
    }
void operation_add(operation added);

/* What the operations use of the engine's. */
void operations_open(void);
void operations_close(void);
