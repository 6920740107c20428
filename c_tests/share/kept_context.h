// SPDX-License-Identifier: Apache-2.0
// Creating a context on a GPU takes longer than everything else in these tests, so each process keeps one.
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

/* Used instead of HOLDER_ROLE. */
#define KEEPING_HOLDER_ROLE USES_ROLE(holder, keeping_holder)
