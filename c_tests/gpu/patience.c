// SPDX-License-Identifier: Apache-2.0
// A deadline on the monotonic clock.
#include "patience.h"

#include <sched.h>
#include <time.h>

uint64_t patience_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * SECONDS(1) + (uint64_t)time.tv_nsec;
}

uint64_t patience_end(void) { return patience_now() + PATIENCE; }

void patience_wait(uint64_t end, const char *what) {
    if (patience_now() > end) {
        FAIL("timed out waiting for %s", what);
    }
    sched_yield();
}
