// SPDX-License-Identifier: Apache-2.0
// The current context of the caller. Cases run without one and with a context of the test, and no call of
// kvmem may change it.
//
// Included after harness.h. EXPECT and CALL then check the current context after each call.
#pragma once

#include "driver.h"
#include "hardware.h"
#include "harness.h"

#undef EXPECT
#define EXPECT(status, call)                                                                         \
    do {                                                                                             \
        test_check_status(__FILE__, __LINE__, #call, call, status);                                  \
        caller_context_check(__FILE__, __LINE__, #call);                                                     \
    } while (0)

#undef CALL
#define CALL(call)                                                                                   \
    do {                                                                                             \
        call;                                                                                        \
        caller_context_check(__FILE__, __LINE__, #call);                                                     \
    } while (0)

#undef OWNED
#define OWNED(type) CLEANUP(caller_context_end_##type) type *
#define CALLER_CONTEXT_END(type)                                                                             \
    static inline void caller_context_end_##type(type **handle) {                                            \
        type##_destroy(*handle);                                                                     \
        caller_context_check(__FILE__, __LINE__, #type "_destroy at the end of a scope");                    \
    }

/* Checks that the current context is the one that the test has set. */
void caller_context_check(const char *file, int line, const char *call);
TEST_HANDLES(CALLER_CONTEXT_END)
/* Sets the current context that calls must not change; NULL for none. */
void caller_context_set(CUcontext context);

/* In a program whose cases are about contexts that are created and released, or kernels that are loaded.
   Other programs keep those of GPU 0 on hardware. */
#define CONTEXTS_END TEST_REGISTER(contexts_end, caller_context_let_contexts_end())
void caller_context_let_contexts_end(void);

/* Runs the cases without and with a current context: each both ways with the stand-in, and on a GPU every
   second one with it and the others without. It is the main function of programs of kvmem_gpu_program that
   define none. */
int caller_context_main(int argc, char **argv, const test_suite *suite);
