// SPDX-License-Identifier: Apache-2.0
// A stand-in for the library of a profiler that NVTX loads: it keeps the ranges of the domain "kvmem".
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)

typedef struct nvtx_sim_range {
    char message[64];
    uint64_t payload;
    bool has_ended;
} nvtx_sim_range;

/* Number of ranges that have started. Writes one of them, the first one is 0. A range that ends twice, or did not start, ends the process. */
size_t nvtx_sim_count(void);
nvtx_sim_range nvtx_sim_get(size_t index);
/* Calls this at each start and end of a range; NULL calls nothing. */
void nvtx_sim_call(void (*at_each)(void));

#pragma GCC visibility pop
