// SPDX-License-Identifier: Apache-2.0
// Who holds the current context: every case runs with none and with one of the test's own, and every call of
// the library must leave it as it is.
//
// Included after harness.h: from here EXPECT looks at the current context after each call.
#pragma once

#include "driver.h"
#include "hardware.h"
#include "harness.h"

#undef EXPECT
#define EXPECT(status, call)                                                                         \
    do {                                                                                             \
        test_check_status(__FILE__, __LINE__, #call, call, status);                                  \
        stance_check(__FILE__, __LINE__, #call);                                                     \
    } while (0)

#undef CALL
#define CALL(call)                                                                                   \
    do {                                                                                             \
        call;                                                                                        \
        stance_check(__FILE__, __LINE__, #call);                                                     \
    } while (0)

#undef OWNED
#define OWNED(type) CLEANUP(stance_end_##type) type *
#define STANCE_END(type)                                                                             \
    static inline void stance_end_##type(type **handle) {                                            \
        type##_destroy(*handle);                                                                     \
        stance_check(__FILE__, __LINE__, #type "_destroy at the end of a scope");                    \
    }

/* The current context is the one that the test made current. */
void stance_check(const char *file, int line, const char *call);
TEST_HANDLES(STANCE_END)
/* Makes a context current, to be found so after every call; NULL for none. */
void stance_take(CUcontext context);

/* Runs the cases in each stance: the main function of every program that kvmem_gpu_program builds and that
   has none of its own. */
int stance_main(int argc, char **argv, const test_suite *suite);
