// SPDX-License-Identifier: Apache-2.0
// Operations whose calls below are made to fail, one after the other: calls of the driver, or system calls. Each is one
// function, which creates objects, uses and destroys them.
#pragma once

#include "harness.h"

typedef struct operation {
    const char *name;
    /* Returns the first status that is not OK, with its error in the error slot. Destroys its objects in any
       case. */
    kvmem_status (*run)(void);
    kvmem_status expected; /* if no call fails */
} operation;

/* Defines an operation that succeeds if no call fails: `OPERATION(a_thing) { ... }`. */
#define OPERATION(name) REFUSED_OPERATION(name, KVMEM_STATUS_OK)
/* Defines an operation that returns this status if no call fails. */
#define REFUSED_OPERATION(name, expected)                                                            \
    static kvmem_status name(void);                                                                  \
    TEST_REGISTER(name, operation_add((operation){#name, name, expected}))                           \
    static kvmem_status name(void)
/* The same with one call, for operations that differ only in values. */
#define OPERATION_CALL(name, call) REFUSED_OPERATION_CALL(name, KVMEM_STATUS_OK, call)
#define REFUSED_OPERATION_CALL(name, expected, call)                                                 \
    REFUSED_OPERATION(name, expected) {                                                              \
        return call;                                                                                 \
    }
void operation_add(operation added);

/* Open and close objects of the engine that the operations use. */
void operations_open(void);
void operations_close(void);
