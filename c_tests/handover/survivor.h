// SPDX-License-Identifier: Apache-2.0
// Resources of a process before its peer dies. After the peer's death they must be the same. Needs the
// stand-in driver.
#pragma once

#include "control.h"
#include "harness.h"

typedef struct survivor {
    size_t files;
    size_t mappings;
    sim_counts live; /* handles, mappings and everything else that the driver counts */
} survivor;

static inline survivor survivor_now(void) {
    return (survivor){count_open_files(), count_mappings(), sim_live_now()};
}

static inline void survivor_check(const survivor *before) {
    await_live(&before->live);
    CHECK_EQ(count_open_files(), before->files);
    CHECK(count_mappings() <= before->mappings + 8); /* the heap may have grown */
}
