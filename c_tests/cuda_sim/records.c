// SPDX-License-Identifier: Apache-2.0
// Creates records, counts their references, and completes them.
#include "records.h"

#include <stdlib.h>
#include <time.h>

record *record_create(void) {
    record *made = sim_allocate(sizeof(*made));
    return record_retain(made);
}

record *record_retain(record *held) {
    held->references++;
    return held;
}

void record_release(record *released) {
    if (released != NULL && --released->references == 0) free(released);
}

void record_complete(record *reached, CUresult error) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    reached->completed_at = (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
    reached->error = error;
    reached->is_complete = true;
}

/* NULL stands for an event that was never recorded. */
bool record_is_complete(const record *queried) { return queried == NULL || queried->is_complete; }
