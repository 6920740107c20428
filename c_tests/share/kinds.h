// SPDX-License-Identifier: Apache-2.0
// The kinds of memory that a program tests. Each program is built twice: for those that need a GPU, and for
// the others.
#pragma once

#include "harness.h"
#include "memory.h"

#ifdef KVMEM_TEST_SHARE_GPU
#include "caller_context.h"
#define FIRST_KIND MEMORY_PINNED
#define END_KIND memory_end_of_kinds()
#else
#define FIRST_KIND MEMORY_SYSTEM
#define END_KIND MEMORY_ON_HOST
#endif

#define EACH_KIND(kind) (memory_kind kind = FIRST_KIND; kind < END_KIND; kind++)

/* A case that runs once per kind. `kind` is the variable. */
#define TEST_EACH_KIND(name)                                                                         \
    static void name##_of(memory_kind kind);                                                         \
    TEST(name) {                                                                                     \
        for EACH_KIND(kind) {                                                                        \
            name##_of(kind);                                                                         \
        }                                                                                            \
    }                                                                                                \
    static void name##_of(memory_kind kind)
