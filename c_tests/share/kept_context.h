// SPDX-License-Identifier: Apache-2.0
// To make a context takes a GPU longer than all else in these tests: each process keeps its own.
#pragma once

#include "holder.h"
#include "kinds.h"

static inline void keep_context(void) {
#ifdef KVMEM_TEST_SHARE_GPU
    keep_device();
#endif
}

static inline void keeping_holder(int socket) {
    keep_context();
    holder_role(socket);
}

/* In place of HOLDER_ROLE. */
#define KEEPING_HOLDER_ROLE USES_ROLE(holder, keeping_holder)
